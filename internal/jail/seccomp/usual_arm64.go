package seccomp

import _ "embed"

//go:embed usual_arm64.bin
var usualBytes string

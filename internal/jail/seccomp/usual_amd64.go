package seccomp

import _ "embed"

//go:embed usual_amd64.bin
var usualBytes string

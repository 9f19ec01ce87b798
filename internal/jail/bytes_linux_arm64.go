package jail

import _ "embed"

//go:embed init/init_arm64.bin
var initBytes []byte

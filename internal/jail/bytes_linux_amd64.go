package jail

import _ "embed"

//go:embed init/init_amd64.bin
var initBytes []byte

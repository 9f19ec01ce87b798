package jail

import _ "embed"

//go:embed init/init_amd64.bin
var initBytes []byte

//go:embed init/snapshot_amd64.bin
var snapshotBytes []byte

package jail

import _ "embed"

//go:embed init/init_arm64.bin
var initBytes []byte

//go:embed init/snapshot_arm64.bin
var snapshotBytes []byte

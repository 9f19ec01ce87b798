//go:build linux && !amd64 && !arm64

package jail

var initBytes []byte // no build of the tiny init for this architecture: no sandbox

var snapshotBytes []byte

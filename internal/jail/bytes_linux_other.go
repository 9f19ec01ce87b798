//go:build linux && !amd64 && !arm64

package jail

var initBytes []byte // init is not built for this architecture, so it has no sandboxes

var snapshotBytes []byte

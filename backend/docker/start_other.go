//go:build !linux

package docker

import (
	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// Start fails: the server has to share a kernel with the engine.
func (*Engine) Start(process.ContainerSpec) (*process.Container, error) {
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "the docker backend needs a server on Linux, on the engine's machine")
}

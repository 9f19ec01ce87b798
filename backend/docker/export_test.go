package docker

import (
	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
)

// Self returns this process as an owner of containers.
func Self() (string, error) { return self() }

// Unstarted returns a container of an owner.
func Unstarted(image, owner, sandbox string) dockerapi.Container {
	o := options(process.ContainerSpec{ID: sandbox, UID: 1000, MemoryBytes: 64 << 20, CPUCores: 1, MaxTasks: 16}, image, owner, "/usr", "unconfined")
	o.HostConfig.AutoRemove = false
	return o
}

// Choose sets the images that b asks its engine for.
func Choose(b *Backend, names []string, usual map[sandboxmcp.Language]string) {
	b.engine.choice = choice{names, usual}
}

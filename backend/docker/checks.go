package docker

import (
	"cmp"
	"context"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// A Checker is a backend of this package.
type Checker interface {
	backend.Backend

	// Checks builds a trial sandbox and reports the engine, its walls and its known holes.
	Checks(ctx context.Context) []sandboxmcp.Check
}

// Checks reports the engine and the walls of a trial container.
func (b *Backend) Checks(ctx context.Context) []sandboxmcp.Check { return checks(ctx, b, b.engine) }

// Checks reports the engine and the walls of a trial container.
func (b *Relayed) Checks(ctx context.Context) []sandboxmcp.Check { return checks(ctx, b, b.engine) }

func checks(ctx context.Context, b backend.Backend, e *Engine) []sandboxmcp.Check {
	sb, err := b.Open(ctx, backend.Spec{ID: "doctor", MinTier: sandboxmcp.TierL1, MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 32, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 1 << 20})
	if err != nil {
		f := sandboxmcp.AsError(err)
		return []sandboxmcp.Check{{Name: "docker", Needed: true, Detail: f.Message, Fix: f.Hint}}
	}
	defer func() { _ = sb.Close(ctx) }()
	iso, err := sb.Isolation(ctx)
	if err != nil {
		return []sandboxmcp.Check{{Name: "docker", Needed: true, Detail: err.Error(), Fix: "report it: a container was started but could not be looked at"}}
	}
	fix := "run the server as root on the engine's machine, so that limits can be read back"
	if e.cfg.relays() {
		fix = "set docker_runtime to one with a kernel of its own, such as runsc, or use runc of an engine on this machine"
	}
	list := []sandboxmcp.Check{
		{Name: "docker", Needed: true, OK: true, Detail: "an engine answers at " + e.cfg.Host + "; image " + strings.Join(e.imageNames(), ", ") + ", runtime " + e.runtimeName()},
		{Name: "docker tier", Needed: true, OK: iso.Tier.AtLeast(cmp.Or(e.cfg.Process.MinTier, sandboxmcp.TierL2)), Detail: string(iso.Tier) + " on Linux " + iso.Kernel, Fix: fix},
	}
	for _, w := range iso.Walls {
		list = append(list, sandboxmcp.Check{Name: "docker: " + w, OK: true, Detail: "stood around the trial container"})
	}
	for _, w := range iso.Weak {
		c := sandboxmcp.Check{Name: "docker: weak", Detail: w, Fix: "set docker_runtime: runsc for a kernel of its own, or use the process backend"}
		if strings.HasPrefix(w, holePrefix) {
			c.Name, c.Fix = "docker: known holes", "update runc with the packages of its distribution, and restart the engine"
		}
		list = append(list, c)
	}
	return list
}

// runtimeName is the runtime of containers.
func (e *Engine) runtimeName() string {
	if e.cfg.Runtime == "" {
		return runc
	}
	return e.cfg.Runtime
}

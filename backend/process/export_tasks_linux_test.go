package process

import (
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

// SetCPU gives a sandbox another share of the processor; false: it has no group.
func SetCPU(sb backend.Sandbox, cores float64) bool {
	s := sb.(*sandbox)
	s.spec.CPUCores = cores
	return s.group != nil && s.group.Set(cgroup.Limits{MemoryBytes: s.spec.MemoryBytes, CPUCores: cores, MaxTasks: s.spec.MaxTasks + 1}) == nil
}

// EndFor ends the programs of a sandbox as the watch on kernel objects does.
func EndFor(sb backend.Sandbox) { sb.(*sandbox).endFor("a test") }

// HoldPipes holds the pipes of a sandbox as when it is ended.
func HoldPipes(sb backend.Sandbox) (release func()) { return sb.(*sandbox).objects.HoldPipes() }

// Reserved returns how many tasks the sandboxes of a backend may have together.
func Reserved(b backend.Backend) int {
	own := b.(*Backend)
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.tasks
}

// InitOf returns the process id on the host of a sandbox's init.
func InitOf(sb backend.Sandbox) int { return sb.(*sandbox).slot.PID() }

// OrKill makes a call on the server's side of a sandbox that its programs may delay.
func OrKill(sb backend.Sandbox, do func() error) error { return sb.(*sandbox).orKill(do) }

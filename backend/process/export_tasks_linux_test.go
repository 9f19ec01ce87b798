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

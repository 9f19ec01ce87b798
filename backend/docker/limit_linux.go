package docker

import (
	"errors"
	"log/slog"
	"os"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

// limitGroup is the engine's control group of a container.
type limitGroup struct {
	g    *cgroup.Group
	ooms *cgroup.OOMs // nil: the kernel has no such events
}

// limit reads the limits of a container back from the control group, if this process may read it. more
// is the number of tasks that the container has besides those of its programs.
func limit(log *slog.Logger, local bool, pid int, spec backend.Spec, more int) (limitGroup, error) {
	if !local || os.Geteuid() != 0 || pid <= 0 {
		return limitGroup{}, nil
	}
	g, err := cgroup.Adopt(cgroup.Config{Logger: log}, pid, cgroup.Limits{MemoryBytes: spec.MemoryBytes, CPUCores: spec.CPUCores, MaxTasks: spec.MaxTasks + more})
	if err != nil {
		return limitGroup{}, err
	}
	ooms, err := g.OOMs()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		log.Warn("a container that ends because of its memory may not be told", "error", err)
	}
	return limitGroup{g, ooms}, nil
}

// ended reports whether the memory limit has ended a container, whose group may have been removed. It is
// called once.
func (l limitGroup) ended() bool { return l.ooms != nil && l.ooms.Any() }

// read reports whether the control group is read.
func (l limitGroup) read() bool { return l.g != nil }

func (l limitGroup) held() (walls, weak []string) {
	if l.g == nil {
		return nil, nil
	}
	return l.g.Walls(), nil
}

func (l limitGroup) usage() backend.Usage {
	if l.g == nil {
		return backend.Usage{}
	}
	u := l.g.Usage()
	return backend.Usage{PeakMemory: u.PeakMemory, CPU: u.CPU, PeakTasks: u.PeakTasks, OOMKills: u.OOMKills}
}

func (l limitGroup) close() error {
	if l.g == nil {
		return nil
	}
	if l.ooms == nil {
		return l.g.Remove()
	}
	return errors.Join(l.ooms.Close(), l.g.Remove())
}

package docker

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

// limitGroup is the engine's control group of a container.
type limitGroup struct {
	g    *cgroup.Group
	ooms *cgroup.OOMs // nil: the kernel has no such events
}

// limit reads the limits of a container back from its control group, if this process may read it. A process
// id of an engine elsewhere is that of another process here, whose group has not the container's name.
func limit(c Config, id string, pid int, spec backend.Spec) (limitGroup, error) {
	if !c.local() || pid <= 0 {
		return limitGroup{}, nil
	}
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || !strings.Contains(string(groups), id) {
		return limitGroup{}, nil //nolint:nilerr // the container is elsewhere, or has ended
	}
	g, err := cgroup.Adopt(cgroup.Config{Logger: c.Logger}, pid, cgroup.Limits{MemoryBytes: spec.MemoryBytes, CPUCores: spec.CPUCores, MaxTasks: spec.MaxTasks + c.runtimeTasks()})
	if err != nil {
		return limitGroup{}, err
	}
	ooms, err := g.OOMs()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		c.Logger.Warn("the end of a container for its memory may be reported without the reason", "error", err)
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
	return l.g.Walls(), l.g.Weak()
}

func (l limitGroup) usage() backend.Usage {
	if l.g == nil {
		return backend.Usage{}
	}
	u := l.g.Usage()
	return backend.Usage{PeakMemory: u.PeakMemory, CPU: u.CPU, PeakTasks: u.PeakTasks, OOMKills: u.OOMKills}
}

// lift lifts the processor limit, and restore sets it again.
func (l limitGroup) lift() error    { return l.g.LiftQuota() }
func (l limitGroup) restore() error { return l.g.RestoreQuota() }

func (l limitGroup) close() error {
	if l.g == nil {
		return nil
	}
	if l.ooms == nil {
		return l.g.Remove()
	}
	return errors.Join(l.ooms.Close(), l.g.Remove())
}

package process

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

// The task limits of all living sandboxes add up to at most a quarter of what
// the kernel has for the machine: a sandbox that makes as many tasks as it may
// leaves room for the host, and for the other sandboxes.

// taskShare: sandboxes may have one part in so many of the machine's tasks.
const taskShare = 4

// MaxTasks returns how many kernel tasks all sandboxes together may have: a
// quarter of kernel.pid_max, of kernel.threads-max, or of the task limit of the
// server's own control group, whichever is lowest.
func (b *Backend) MaxTasks() int {
	if b.cfg.MaxTasks > 0 {
		return b.cfg.MaxTasks
	}
	return b.machineTasks()
}

// machineTasks reads the kernel's limits and returns the share of sandboxes.
func machineTasks() int {
	lowest := 0
	for _, n := range []int{kernelNumber("pid_max"), kernelNumber("threads-max"), cgroup.ServerTasks(cgroup.Config{})} {
		if n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	return max(lowest/taskShare, 2*sandboxmcp.TasksPerProcess) // one session and one run of the smallest size
}

func kernelNumber(name string) int {
	b, err := os.ReadFile("/proc/sys/kernel/" + name)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

var errNoTasks = errors.New("the task limits of the living sandboxes leave no room for one that is kept ready")

// reserveTasks counts the tasks of a sandbox that is about to be built. For a caller's
// sandbox it closes ready ones until the new one fits. With ahead it fails with
// errNoTasks if the sandbox does not fit. Call returnTasks when the sandbox is gone.
func (b *Backend) reserveTasks(n int, ahead bool) error {
	most := b.MaxTasks()
	for {
		b.mu.Lock()
		over := b.tasks+n > most
		if !over || !ahead && b.ready.Len() == 0 {
			b.tasks += n
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock()
		if ahead {
			return errNoTasks
		}
		b.ready.Evict()
	}
}

func (b *Backend) returnTasks(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks -= n
}

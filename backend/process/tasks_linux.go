package process

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// The task limits of all live sandboxes add up to at most a quarter of what the kernel has for the
// machine. So if a sandbox makes as many tasks as it may, enough are left for the host and for the
// other sandboxes.

// Sandboxes may have 1/taskShare of the machine's tasks.
const taskShare = 4

// MaxTasks returns how many kernel tasks all sandboxes together may have. The default is a quarter
// of the lowest of kernel.pid_max, kernel.threads-max, the task limit of the server's own
// control group and that of its user.
func (b *Backend) MaxTasks() int {
	if b.cfg.MaxTasks > 0 {
		return b.cfg.MaxTasks
	}
	return machineTasks()
}

// machineTasks returns the sandboxes' share of the kernel's limits. All backends of a server have the
// same one, so they are read once.
var machineTasks = sync.OnceValue(func() int {
	lowest := 0
	for _, n := range []int{kernelNumber("pid_max"), kernelNumber("threads-max"), cgroup.ServerTasks(cgroup.Config{}), jail.UserTasks()} {
		if n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	return max(lowest/taskShare, 2*sandboxmcp.TasksPerProcess) // enough for one session and one run of the smallest size
})

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

// reserveTasks reserves the tasks of a sandbox that is about to be built. For a caller's sandbox it
// closes ready sandboxes until the new one fits. With ahead, it fails with errNoTasks if the
// sandbox does not fit. The caller calls returnTasks when the sandbox has ended.
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

// exchangeTasks reserves the tasks of a ready sandbox's caller in place of those that it had.
func (b *Backend) exchangeTasks(had, want int) {
	if want <= had {
		b.returnTasks(had - want)
		return
	}
	_ = b.reserveTasks(want-had, false) // fails only for ready sandboxes
}

func (b *Backend) returnTasks(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks -= n
}

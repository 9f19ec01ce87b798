package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
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
	for _, n := range []int{processNumbers(), kernelNumber("threads-max"), cgroup.ServerTasks(cgroup.Config{}), jail.UserTasks()} {
		if n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	return max(lowest/taskShare, 2*sandboxmcp.TasksPerProcess) // enough for one session and one run of the smallest size
})

// processNumbers returns how many process numbers the machine has. Since Linux 6.14 each pid namespace has a pid_max of its
// own, mostNumbers at first. In a container the file tells that one, and not the host's, which bounds the container, too. The
// host's is then taken for what the kernel chooses at its start.
func processNumbers() int {
	own, _ := os.Readlink("/proc/self/ns/pid")
	return numbersIn(kernelNumber("pid_max"), own != "pid:[4026531836]" && limitsNamespaces(kernelRelease()), runtime.NumCPU())
}

// mostNumbers is the largest pid_max (PID_MAX_LIMIT). fewNumbers is that of a host with few processors, and cpuNumbers for
// each processor that of one with many (PID_MAX_DEFAULT, PIDS_PER_CPU_DEFAULT, linux/threads.h).
const (
	mostNumbers = 4 << 20
	fewNumbers  = 32768
	cpuNumbers  = 1024
)

// numbersIn is processNumbers for a pid_max, which may be that of a container.
func numbersIn(most int, contained bool, processors int) int {
	if contained && most == mostNumbers {
		return max(fewNumbers, cpuNumbers*processors)
	}
	return most
}

// limitsNamespaces reports whether a kernel has a pid_max for each pid namespace.
func limitsNamespaces(release string) bool {
	var major, minor int
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 14
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

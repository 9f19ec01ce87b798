package jail

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The kernel counts the tasks of sandboxes among those of the server's user, and refuses that user
// further ones at RLIMIT_NPROC. A Go program that gets no thread ends. So the server keeps a part of
// the limit to itself: the user namespace of all sandboxes has a lower one, which the kernel
// compares with all tasks of the user. It counts pending signals and timers in the same way, also for
// root.

// UserTasks returns how many tasks the server's user may have, and 0 if the kernel does not limit them,
// as for root outside of a user namespace. It waits while belowUser has lowered the limit.
func UserTasks() int {
	lowering.Lock()
	defer lowering.Unlock()
	return userTasksLocked()
}

// userSignals returns how many signals of the server's user may be pending, and 0 if the kernel does not
// limit them. It waits while belowUser has lowered the limit.
func userSignals() int {
	lowering.Lock()
	defer lowering.Unlock()
	return finite(unix.RLIMIT_SIGPENDING)
}

func userTasksLocked() int {
	if os.Geteuid() == 0 && wholeMap() {
		return 0
	}
	return finite(unix.RLIMIT_NPROC)
}

// finite returns a limit of this process, and 0 if it is infinite.
func finite(which int) int {
	var l unix.Rlimit
	if unix.Getrlimit(which, &l) != nil || l.Cur >= 1<<31 {
		return 0
	}
	return int(l.Cur)
}

// wholeMap reports whether this process is in the first user namespace, whose map has all ids.
func wholeMap() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(b))
	return err == nil && len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}

// ownTasks returns the server's part of a limit on its user's tasks. A busy server has some dozens
// of threads.
func ownTasks(limit int) int { return max(limit/8, min(64, limit/2)) }

// ownSignals returns the user's part of a limit on its pending signals and timers.
func ownSignals(limit int) int { return limit / 4 }

// lowering is held while belowUser has lowered the limits, and by what reads them.
var lowering sync.Mutex

// belowUser calls fork while the limits of tasks and of pending signals are lower, because the kernel
// gives a new user namespace those of the process that makes it. If the kernel refuses a thread
// meanwhile, the runtime retries for 0.2 s, which is far longer.
func belowUser(fork func() error) error {
	lowering.Lock()
	defer lowering.Unlock()
	return below(unix.RLIMIT_NPROC, userTasksLocked(), ownTasks, func() error {
		return below(unix.RLIMIT_SIGPENDING, finite(unix.RLIMIT_SIGPENDING), ownSignals, fork)
	})
}

// below calls do while a limit is lower than n by what own returns. With n 0 it lowers nothing.
func below(which, n int, own func(int) int, do func() error) error {
	var l unix.Rlimit
	if n == 0 || unix.Getrlimit(which, &l) != nil {
		return do()
	}
	if err := unix.Setrlimit(which, &unix.Rlimit{Cur: uint64(n - own(n)), Max: l.Max}); err != nil {
		return err
	}
	err := do()
	if back := unix.Setrlimit(which, &l); err == nil {
		err = back
	}
	return err
}

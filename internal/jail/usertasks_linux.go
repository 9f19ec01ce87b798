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
// as for root outside of a user namespace.
func UserTasks() int {
	if os.Geteuid() == 0 && WholeMap() {
		return 0
	}
	return finite(unix.RLIMIT_NPROC)
}

// TasksOfOthers returns how many tasks the server's user may have before only the server gets further ones, and 0 if the kernel does
// not limit them.
func TasksOfOthers() uint64 { return below(UserTasks(), ownTasks) }

// finite returns a limit of this process, and 0 if it is infinite.
func finite(which int) int {
	var l unix.Rlimit
	if unix.Getrlimit(which, &l) != nil || l.Cur >= 1<<31 {
		return 0
	}
	return int(l.Cur)
}

// WholeMap reports whether this process is in the first user namespace, whose map has all ids.
func WholeMap() bool { return wholeMap() }

var wholeMap = sync.OnceValue(func() bool { // a process of several threads stays in its user namespace
	f := strings.Fields(string(readLine("/proc/self/uid_map")))
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
})

// ownTasks returns the server's part of a limit on its user's tasks. A busy server has some dozens
// of threads.
func ownTasks(limit int) int { return max(limit/8, min(64, limit/2)) }

// ownSignals returns the user's part of a limit on its pending signals and timers.
func ownSignals(limit int) int { return limit / 4 }

// below returns a limit of n without what own keeps to the server. The kernel gives a new user namespace
// the limits of the process that makes it.
func below(n int, own func(int) int) uint64 {
	if n == 0 {
		return 0
	}
	return uint64(n - own(n))
}

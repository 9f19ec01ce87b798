package watch

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// /proc/locks names the process that has taken a lock by its number in the pid namespace of its reader. Outside of the machine's
// first pid namespace, as in a container, it leaves out a lock of a whole file (flock) whose process has ended. Other processes may
// still have the open file. So a server there also counts the descriptors whose open file has such a lock, which fdinfo shows.

// listsAll reports whether /proc/locks lists the locks of processes that have ended.
var listsAll = sync.OnceValue(func() bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO
	space, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && space == first
})

// overLeftOut returns a description if the processes have too many descriptors of files that are locked as a whole, and "" otherwise.
// all says that /proc/locks lists all locks; then it does not count. It reads single descriptors only if the processes have enough of
// them. That can take longer than one look, because programs can make such a read wait. A later look then gets the result.
func (s *Target) overLeftOut(o *Objects, processes []string, all bool) string {
	files := 0
	for _, p := range processes {
		files += countFiles(filesOf(p))
	}
	if s.leftOut.idle() && (all || files <= maxLocks) {
		return ""
	}
	n, done := ask(o, s, &s.leftOut, "file locks", func() (sum int) {
		for _, p := range processes {
			if sum += wholeOf(p, maxLocks-sum); sum > maxLocks {
				break
			}
		}
		return sum
	})
	if !done {
		s.counted = -idleCPU // count it again
		return ""
	}
	s.restFrom(time.Now(), n.took)
	if n.value <= maxLocks {
		return ""
	}
	return fmt.Sprintf("more than %d file locks", maxLocks)
}

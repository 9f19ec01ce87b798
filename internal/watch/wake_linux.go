package watch

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// wakeFor is how long after the programs went on a new process may turn out to be stopped; see wake.
const wakeFor = 2 * time.Second

// mostForksWoken is how many processes are continued one by one.
const mostForksWoken = 8

// wake continues the forks among the stopped processes if the programs went on a short time ago. A fork that goes on while its
// parent is stopped and continued is stopped when it begins: the kernel keeps the first signal for it, and not the second, because
// a program that does not handle SIGCONT ignores it. Nothing else would continue that process. Others stay stopped: a program may
// have stopped them itself, as a shell does with its jobs.
func (w *Group) wake(stopped []string) {
	w.sharing.Lock()
	goesOn := w.goesOn(time.Now())
	w.sharing.Unlock()
	if len(stopped) == 0 || !goesOn {
		return
	}
	forks := slices.DeleteFunc(stopped, func(p string) bool { return !beginsBy(w.read(p, "syscall")) }) // this may take long, so without the lock
	w.sharing.Lock()
	defer w.sharing.Unlock()
	if !w.goesOn(time.Now()) {
		return
	}
	if len(forks) > 0 && (w.outside || len(forks) > mostForksWoken) { // init knows no numbers of the host
		_ = w.slot.SignalAll(int(unix.SIGCONT))
		return
	}
	for _, p := range forks {
		if n, err := strconv.Atoi(p); err == nil {
			_ = w.slot.SignalSoon(n, int(unix.SIGCONT))
		}
	}
}

// forkCalls are the numbers of the calls that start a process: clone, clone3, and fork and vfork where there are such calls.
var forkCalls = map[string][]string{
	"amd64": {"56", "435", "57", "58"},
	"arm64": {"220", "435"},
}[runtime.GOARCH]

// beginsBy reports whether a stopped process may not have returned from the call that started it, by its syscall file in /proc.
// Other processes were stopped in another call or in none, unless it was in the call by which they started one.
func beginsBy(text string) bool {
	call, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return call == "" || slices.Contains(forkCalls, call)
}

// goesOn reports whether the programs went on a short time ago and were not stopped since. While they are being ended (free), who
// ends them stops some of them before. sharing is held.
func (w *Group) goesOn(now time.Time) bool {
	return !w.stopped && !w.free && w.continued.After(w.halted) && now.Sub(w.continued) < wakeFor
}

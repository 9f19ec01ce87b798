package watch

import (
	"maps"
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
// have stopped them itself, as a shell does with its jobs. stopped are those of which begins is true.
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

// forking is a process that may have been in a call that starts another one when the programs went on.
type forking struct {
	at    time.Time // when the programs went on
	ended bool      // the calls have ended: a look has seen the process in none
}

// stopsLong is how long the watch waits for processes to stop before they go on.
const stopsLong = 10 * time.Millisecond

// noteForking notes which processes may be in a call that starts another one: a thread of theirs runs, or waits where no signal
// reaches it. It is called when the programs were stopped, just before they go on. It waits a moment for those that run, because
// nearly all of them are about to stop. The status files that it reads make it wait for no program.
func (w *Group) noteForking() {
	t := time.NewTicker(stopsLong / 10)
	defer t.Stop()
	for began := time.Now(); ; {
		found, run := map[string]*forking{}, false
		for _, p := range w.processes() {
			if w.isInit(p) { // it is not stopped
				continue
			}
			runs, waits := w.busy(p)
			if run = run || runs; runs || waits {
				found[p] = &forking{at: time.Now()}
			}
		}
		if !run || time.Since(began) > stopsLong {
			maps.Copy(w.forking, found)
			return
		}
		select {
		case <-w.quit:
			return
		case <-t.C:
		}
	}
}

// busy reports whether a thread of a process runs, and whether one waits where no signal reaches it.
func (w *Group) busy(p string) (runs, waits bool) {
	tasks, first := []string{p}, w.read(p, "status")
	if threads, _ := inStatus(first, "Threads"); threads != "1" {
		tasks = tasks[:0]
		for _, t := range w.threads(p) {
			tasks = append(tasks, p+"/task/"+t)
		}
	}
	for _, t := range tasks {
		state, _ := inStatus(w.read(t, "status"), "State")
		runs, waits = runs || state == "R", waits || state == "D"
	}
	return runs, waits
}

// forkedMeanwhile reports whether a child of parent may have begun while the programs were stopped and continued.
func (w *Group) forkedMeanwhile(parent string) bool {
	w.sharing.Lock()
	known := time.Since(w.unnoted) >= wakeFor
	w.sharing.Unlock()
	return !known || w.forking[parent] != nil || len(w.forking) > 0 && w.isInit(parent)
}

// isInit reports whether a process is init, which becomes the parent of processes whose parent ends.
func (w *Group) isInit(p string) bool {
	return p == "1" || w.outside && p == strconv.Itoa(w.slot.PID())
}

// begins reports whether a process is stopped and may be a fork for wake. It is called for each process in a look, and endForking
// after that.
func (w *Group) begins(p string, s seen) bool {
	f, orphan := w.forking[s.parent], len(w.forking) > 0 && w.isInit(s.parent)
	if s.runs && (f != nil || orphan) && willStop(w.read(p, "status")) { // it is stopped soon
		for _, g := range w.forking {
			g.ended = g.ended && g != f && !orphan
		}
	}
	return s.stopped && w.forkedMeanwhile(s.parent)
}

// endForking forgets processes that have ended their calls before a look: the look has found all that they had started.
func (w *Group) endForking() {
	for p, f := range w.forking {
		if f.ended || time.Since(f.at) >= wakeFor {
			delete(w.forking, p)
			continue
		}
		runs, waits := w.busy(p)
		f.ended = !runs && !waits
	}
}

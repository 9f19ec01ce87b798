package watch

import (
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Programs stop processes themselves, as shells stop their jobs. If such a process went on when the watch continues the programs, who
// has stopped it and waits for that would wait for ever. If the watch stopped it again after that, it could come too late: a program
// that continues the process meanwhile would find it stopped for ever. So the watch continues the others one by one.

// noteOwn notes which processes programs have stopped themselves. It is called before the watch stops the programs. It does
// nothing if these are stopped already.
func (w *Group) noteOwn() {
	w.sharing.Lock()
	held, halts := w.stopped || w.isHeld(), w.halts
	w.sharing.Unlock()
	if held || w.outside { // init knows no numbers of the host
		return
	}
	w.own = map[string]int64{}
	w.noteStopped(halts, func(status string) bool { return isStopped(status) || willStop(status) })
	if halted, _ := w.halt(); !halted || !w.slot.Heeds(settleEvery) {
		return
	}
	// a signal that came before the watch's has stopped those that have another one waiting
	w.noteStopped(halts+1, func(status string) bool { return isStopped(status) && willStop(status) })
}

// noteStopped notes the processes for which own is true of their status. It notes none if w.halts is not halts when it has read them:
// a late look has stopped the programs meanwhile, and would be taken for a program that did so.
func (w *Group) noteStopped(halts int, own func(status string) bool) {
	found := map[string]int64{}
	for _, p := range w.processes() {
		if status := w.read(p, "status"); own(status) && !w.isLateFork(p, status) {
			found[p] = rests(status)
		}
	}
	w.sharing.Lock()
	defer w.sharing.Unlock()
	if w.halts == halts {
		maps.Copy(w.own, found)
	}
}

// isLateFork reports whether the watch itself may have stopped a process, see wake.
func (w *Group) isLateFork(p, status string) bool {
	parent, _ := inStatus(status, "PPid")
	return w.forkedMeanwhile(parent) && beginsBy(w.read(p, "syscall"))
}

// stillOwn returns the numbers of the processes that noteOwn has noted. It leaves out those that a program has continued before the
// watch stopped the programs: these have stopped once more.
func (w *Group) stillOwn() (found []int) {
	for p, before := range w.own {
		if status := w.read(p, "status"); isStopped(status) && before == rests(status) {
			if n, err := strconv.Atoi(p); err == nil {
				found = append(found, n)
			}
		}
	}
	return found
}

// mostContinued is how many processes are continued one by one. So many requests fit into init's socket.
const mostContinued = 128

// continuing returns how stopped programs go on: all of them at once, if all is true, and then by signals. The processes in own stay
// stopped. Those with the highest numbers go on first. These are the youngest: who continues or stops a process is mostly an ancestor of
// it, and must not do so before the watch has continued the process. If there are too many processes, those in own are stopped again.
func continuing(processes []string, own []int) (all bool, signals []sent) {
	if len(own) == 0 {
		return true, nil
	}
	for _, p := range processes {
		if n, err := strconv.Atoi(p); err == nil && n != 1 && !slices.Contains(own, n) {
			signals = append(signals, sent{n, int(unix.SIGCONT)})
		}
	}
	if len(signals) <= mostContinued {
		slices.SortFunc(signals, func(a, b sent) int { return b.process - a.process })
		return false, signals
	}
	signals = signals[:0]
	for _, n := range own {
		signals = append(signals, sent{n, int(unix.SIGSTOP)})
	}
	return true, signals
}

// isStopped reports whether a process is stopped by a signal, by the text of its status file in /proc.
func isStopped(status string) bool {
	state, _ := inStatus(status, "State")
	return state == "T"
}

// willStop reports whether a process has got a signal that stops it, and has not stopped yet.
func willStop(status string) bool { return pends(status, unix.SIGSTOP) }

// pends reports whether a process has got a signal and has not handled it yet.
func pends(status string, signal unix.Signal) bool {
	text, _ := inStatus(status, "ShdPnd")
	signals, _ := strconv.ParseUint(text, 16, 64)
	return signals&(1<<(signal-1)) != 0
}

// A sent is a signal for a process.
type sent struct{ process, signal int }

// unhandled returns the signals of terminals that stop processes, and that processes have not handled yet. SIGCONT would take these
// signals from them, so they get them again. The watch itself sends none of these.
func (w *Group) unhandled() (found []sent) {
	if w.outside { // init knows no numbers of the host
		return nil
	}
	for _, p := range w.processes() {
		status := w.read(p, "status")
		for _, signal := range []unix.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
			if n, err := strconv.Atoi(p); err == nil && pends(status, signal) {
				found = append(found, sent{n, int(signal)})
			}
		}
	}
	return found
}

// rests returns how often a process will have given up a processor when it is stopped: once for each stop, and for other reasons.
func rests(status string) int64 {
	text, _ := inStatus(status, "voluntary_ctxt_switches")
	n, _ := strconv.ParseInt(text, 10, 64)
	if !isStopped(status) {
		n++
	}
	return n
}

package watch

import "time"

// A process that has ended between the list of processes and its reading shows no memory. If it has passed its memory on to another
// process that shares it (CLONE_VM), that one is not in the list. A program whose processes each start the next one and end could
// so hold memory that no measurement meets. So if nearly all measurements miss a process, the programs are stopped for one.

// mostMissed is how many more measurements may miss a process than may not. Ordinary programs with many short processes are missed
// by fewer than half.
const mostMissed = 50

// misses reports whether a measurement has missed a process: it was listed, and has shown no memory then or before. s is what was
// read of it; ok is false if nothing was.
func (w *Group) misses(p string, s seen, ok bool) bool {
	_, known := w.spent.last[p+" "+s.start]
	return !ok || !known && s.reserved == 0 && !s.blind
}

// tally notes whether a measurement has missed a process.
func (w *Group) tally(missed bool) {
	if missed {
		w.missed++
	} else {
		w.missed = max(w.missed-1, 0)
	}
}

// lookStill is lookInTime. If too many measurements have missed a process, it stops the programs for this one.
func (w *Group) lookStill() bool {
	if w.missed <= mostMissed {
		return w.lookInTime()
	}
	w.missed = 0
	w.noteOwn()
	if halted, _ := w.halt(); halted {
		t := time.NewTimer(settleEvery)
		defer t.Stop()
		select {
		case <-w.quit:
			return false
		case <-t.C:
		}
	}
	goesOn := w.lookInTime()
	if goesOn {
		w.goOn()
	}
	return goesOn
}

package watch

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// lateLook is how long a look may take before the programs are stopped. An execve frees the process's old memory, which
// can take seconds. Until then some kernels do not show that process: a read of its stat waits, and so does the look.
const lateLook = 2 * mostPatience

// lookInTime is look. If that takes long, it stops the programs until the look has ended.
func (w *Group) lookInTime() bool {
	if m := w.memory.Load(); m > 0 {
		w.limits.MemoryBytes = m
	}
	ended, done := make(chan struct{}), make(chan struct{})
	late := time.AfterFunc(lateLook, func() {
		defer close(done)
		stopWhile(ended, w.limits.MemoryBytes, stopping{w.halt, w.wentOn, w.shown, w.exceeded, w.quit})
	})
	goesOn := w.look()
	close(ended)
	if !late.Stop() {
		<-done
		if goesOn {
			w.goOn()
		}
	}
	return goesOn
}

// stopping is what stopWhile does with programs.
type stopping struct {
	halt     func() (halted, ended bool) // see settling
	wentOn   func() time.Time            // when they last went on
	shown    func() int64                // their memory, without waiting for one of them
	exceeded func()                      // ends them
	quit     <-chan struct{}
}

// stopWhile keeps programs stopped until a look has ended. A program that is in a system call stops after it. If
// programs take more than growth meanwhile, it ends them.
func stopWhile(ended <-chan struct{}, growth int64, s stopping) {
	wentOn, most := s.wentOn(), s.shown()+growth
	t := time.NewTicker(settleEvery)
	defer t.Stop()
	for {
		if _, gone := s.halt(); gone { // each time, because a timer can continue a program
			return
		}
		select {
		case <-ended:
			return
		case <-s.quit:
			return
		case <-t.C:
		}
		if at := s.wentOn(); at != wentOn { // the look has stopped and continued them, too
			wentOn, most = at, s.shown()+growth
			continue
		}
		if s.shown() > most {
			s.exceeded()
			return
		}
	}
}

// wentOn returns when stopped programs last went on.
func (w *Group) wentOn() time.Time {
	w.sharing.Lock()
	defer w.sharing.Unlock()
	return w.continued
}

// shown adds up the resident memory of all processes. No lock of a program delays it.
func (w *Group) shown() (sum int64) {
	for _, p := range descendants(strconv.Itoa(w.slot.PID()), nil) {
		text, _ := os.ReadFile("/proc/" + p + "/statm")
		if f := strings.Fields(string(text)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum
}

// exceeded ends the programs for memory.
func (w *Group) exceeded() {
	w.mu.Lock()
	w.ooms++
	w.mu.Unlock()
	w.relieve(0)
}

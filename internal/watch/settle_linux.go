package watch

import (
	"time"

	"golang.org/x/sys/unix"
)

// A process that does not answer in time may hold a lock, or the machine may be busy. It then counts with all of its resident
// memory, so programs that share much of it seem to be above their limit when they are not. The same holds for memory that
// outlives its process, and for processes that begin or end while the watch adds up. So before programs are ended, they are
// stopped. Stopped programs hold no locks, take no memory, start no processes and read no memory of others, so the watch can wait
// until all have answered.
const (
	settleLimit  = 5 * time.Second
	settleEvery  = 20 * time.Millisecond
	settleGrowth = 16 << 20    // more memory than this is not taken by programs that are stopped
	settleStops  = time.Second // programs that were asked to stop may go on for so long on a busy machine: init stops them when it runs
)

// exactly is sum, for programs that may have up to limit. It returns false if they are being ended.
func (w *Group) exactly(limit int64) (sum int64, ok bool) {
	sum, sure := w.sum(limit)
	if sure || sum <= limit {
		return sum, true
	}
	w.noteOwn()
	w.exact.keep()
	defer w.exact.drop()
	sum, ok = settle(limit, settling{w.halt, w.taken, func() (int64, bool) { return w.sum(limit) }, w.exact.keep, w.quit})
	if !ok || sum <= limit { // otherwise they are ended
		w.goOn()
	}
	return sum, ok
}

// settling is what settle does with programs.
type settling struct {
	halt   func() (halted, ended bool)  // stops the programs, unless they are being ended
	taken  func() (all, distinct int64) // their memory; in all, shared memory counts for each process, and in distinct forks share all of it
	sum    func() (sum int64, sure bool)
	forget func() // drops the sizes that sum has kept
	quit   <-chan struct{}
}

// settle stops programs until each of them has answered. After settleLimit, or if a program takes memory
// although it was stopped, it counts those that have not answered with all of their resident memory. It takes settleStops until that
// counts as taken after the stop, unless what surely counts once is above the limit.
func settle(limit int64, s settling) (sum int64, ok bool) {
	began := time.Now()
	taken, distinct := s.taken()
	most, mostDistinct, end := taken+settleGrowth, distinct+settleGrowth, began.Add(settleLimit)
	t := time.NewTicker(settleEvery)
	defer t.Stop()
	for {
		halted, ended := s.halt() // each time, because a timer can continue a program
		if ended {
			return 0, false
		}
		sum, sure := s.sum()
		if sure || sum <= limit || !halted || time.Now().After(end) {
			return sum, true
		}
		taken, distinct := s.taken()
		switch {
		case distinct > max(mostDistinct, limit), (distinct > mostDistinct || taken > most) && time.Since(began) >= settleStops:
			return sum, true
		case taken > most: // it may be a fork that had begun, and counts with all that it shares
			most = taken + settleGrowth
			s.forget()
		}
		select {
		case <-s.quit:
			return 0, false
		case <-t.C:
		}
	}
}

// halt stops the programs, unless all of them are being ended.
func (w *Group) halt() (halted, ended bool) {
	w.sharing.Lock()
	defer w.sharing.Unlock()
	if w.ending() {
		return false, true
	}
	w.halted = time.Now()
	w.halts++
	return w.slot.SignalAll(int(unix.SIGSTOP)) == nil, false
}

// ending reports whether all programs are being ended. sharing is held.
func (w *Group) ending() bool { return w.free && !w.spares }

// isHeld reports whether halt has stopped the programs since they last went on. sharing is held.
func (w *Group) isHeld() bool { return w.halted.After(w.continued) }

// goOn continues the programs, unless they are ahead of their share of the processor. It does nothing if they have gone on already:
// what programs have stopped themselves would go on, too.
func (w *Group) goOn() {
	w.sharing.Lock()
	held := w.isHeld()
	w.sharing.Unlock()
	if !held {
		return
	}
	own := w.stillOwn()
	w.own = nil
	w.noteForking()
	all, signals := continuing(w.processes(), own)
	again := w.unhandled()
	w.sharing.Lock()
	defer w.sharing.Unlock()
	if w.stopped {
		return
	}
	if all || w.ending() { // who ends them may have stopped some
		_ = w.proceed()
	}
	w.continued = time.Now()
	for _, s := range signals {
		if !w.ending() {
			_ = w.slot.SignalSoon(s.process, s.signal)
		}
	}
	for _, s := range again {
		_ = w.slot.SignalSoon(s.process, s.signal)
	}
}

// taken adds up the resident memory of all processes and their page tables. In distinct, only the largest of the processes that
// were forked from one program counts, without page tables. No lock of a program delays it.
func (w *Group) taken() (all, distinct int64) {
	processes, largest := w.processes(), map[string]int64{}
	all = w.pageTables(processes)
	for _, p := range processes {
		s, _ := w.see(p)
		all += s.resident
		largest[s.layout] = max(largest[s.layout], s.resident)
	}
	for _, n := range largest {
		distinct += n
	}
	return all, distinct
}

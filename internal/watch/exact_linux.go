package watch

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// exact reads proportional set sizes (PSS), in which pages that several processes share count once.
// The kernel adds them up under a lock of the process, which a program can hold: while a process
// with many mappings forks, for one. A process that does not answer in time counts with all of its
// resident memory, also in later sums until it answers.
type exact struct {
	reads sync.WaitGroup
	mu    sync.Mutex
	busy  map[string]bool // processes whose reading has not ended; guarded by mu
}

// A sum waits for the first late process for mostPatience, and for each further one half as long, but
// at least leastPatience.
const (
	mostPatience  = 100 * time.Millisecond
	leastPatience = 5 * time.Millisecond
)

// sum adds up the memory of all processes exactly. sure is false if it counts a process with all of its
// resident memory because that does not answer.
func (w *Group) sum() (sum int64, sure bool) {
	return w.exact.sum(w.apart(w.processes()), func(p string) (resident int64, rollup func() string) {
		seen, _ := w.see(p)
		outside, path := w.outside, seen.path
		return seen.resident, func() string { return w.readFrom(outside, path, "smaps_rollup") }
	})
}

// sum adds up the PSS of processes. open returns the resident memory of one and a function that reads
// its rollup, which may block. sure is false if the rollup of one was not read.
func (e *exact) sum(processes []string, open func(p string) (resident int64, rollup func() string)) (sum int64, sure bool) {
	sure = true
	patience := mostPatience
	for _, p := range processes {
		resident, rollup := open(p)
		size, how := e.read(p, rollup, patience)
		if how == late {
			patience = max(patience/2, leastPatience)
		}
		if how != exactly {
			size = resident
		}
		sum, sure = sum+size, sure && (how == exactly || how == nothing)
	}
	return sum, sure
}

// reading is how the reading of a rollup has ended.
type reading int

const (
	exactly reading = iota
	nothing         // it shows no PSS
	late            // it was not read in time
	pending         // an earlier reading has not ended
)

// read returns the PSS that a rollup shows.
func (e *exact) read(p string, rollup func() string, patience time.Duration) (size int64, how reading) {
	if !e.take(p) {
		return 0, pending
	}
	text := make(chan string, 1)
	e.reads.Go(func() {
		defer e.give(p)
		text <- rollup()
	})
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case s := <-text:
		_, rest, found := strings.Cut(s, "\nPss:")
		f := strings.Fields(rest)
		if !found || len(f) == 0 {
			return 0, nothing
		}
		kb, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			return 0, nothing
		}
		return kb << 10, exactly
	case <-t.C:
		return 0, late
	}
}

// take reports whether no reading of the process is under way, and begins one.
func (e *exact) take(p string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy[p] {
		return false
	}
	if e.busy == nil {
		e.busy = map[string]bool{}
	}
	e.busy[p] = true
	return true
}

func (e *exact) give(p string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.busy, p)
}

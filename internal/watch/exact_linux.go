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

// sum adds up the memory of all processes exactly.
func (w *Group) sum() int64 {
	return w.exact.sum(w.processes(), func(p string) (resident int64, rollup func() string) {
		seen, _ := w.see(p)
		outside, path := w.outside, seen.path
		return seen.resident, func() string { return w.readFrom(outside, path, "smaps_rollup") }
	})
}

// sum adds up the PSS of processes. open returns the resident memory of one and a function that reads
// its rollup, which may block.
func (e *exact) sum(processes []string, open func(p string) (resident int64, rollup func() string)) int64 {
	var sum int64
	patience := mostPatience
	for _, p := range processes {
		resident, rollup := open(p)
		size, ok, late := e.read(p, rollup, patience)
		if late {
			patience = max(patience/2, leastPatience)
		}
		if !ok {
			size = resident
		}
		sum += size
	}
	return sum
}

// read returns the PSS that a rollup shows. It fails if the rollup shows none. late means that the
// rollup was not read in time.
func (e *exact) read(p string, rollup func() string, patience time.Duration) (size int64, ok, late bool) {
	if !e.take(p) {
		return 0, false, false
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
			return 0, false, false
		}
		kb, err := strconv.ParseInt(f[0], 10, 64)
		return kb << 10, err == nil, false
	case <-t.C:
		return 0, false, true
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

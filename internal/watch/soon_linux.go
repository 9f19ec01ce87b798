package watch

import (
	"sync/atomic"
	"time"
)

// This file keeps one sandbox from delaying the counts of others.

// beside makes a count in a goroutine of its own, because it may wait for what a program holds. Its methods are
// used by Objects.run alone.
type beside[T any] struct{ result chan T }

// idle reports whether the next call of ask begins a count.
func (b *beside[T]) idle() bool { return b.result == nil }

// ask begins a count, unless one is under way, and waits for it at most for mostPatience. For one that began before it does
// not wait. done is false if the count has not ended. The next call then asks for its result.
func (b *beside[T]) ask(count func() T) (result T, done bool) {
	patience := time.Duration(0)
	if b.idle() {
		c := make(chan T, 1)
		b.result, patience = c, mostPatience
		go func() { c <- count() }()
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case result = <-b.result:
		b.result = nil
		return result, true
	case <-t.C:
		return result, false
	}
}

// progress is that of the counts of a sandbox's epoll watches. seen and since are used by Objects.run alone.
type progress struct {
	steps atomic.Int64 // descriptors that were read
	slow  atomic.Int64 // epoll sets that took long to read, since the count has begun
	seen  int64        // steps at the last look
	since time.Time    // when the count began, or steps was first seen to have this value
	over  bool         // stalls has returned true for the count
}

// read notes that an epoll set was read.
func (p *progress) read(took time.Duration) {
	if took > mostPatience {
		p.slow.Add(1)
	}
}

// begin notes that a count begins.
func (p *progress) begin(now time.Time) {
	p.slow.Store(0)
	p.seen, p.since, p.over = p.steps.Load(), now, false
}

// stalls reports whether programs keep the count from going on: it waits for many sets, or has read nothing for
// mostStill. counted says that it has ended, so it does not stand still. stalls returns true at most once for each
// count: the programs that it is true of are ended, and others may run when the count ends.
func (p *progress) stalls(now time.Time, counted bool) bool {
	if n := p.steps.Load(); n != p.seen {
		p.seen, p.since = n, now
	}
	if p.over || p.slow.Load() <= mostSlow && (counted || now.Sub(p.since) <= mostStill) {
		return false
	}
	p.over = true
	return true
}

// end ends the programs of a sandbox in the background, because that can take seconds. Until it is done, further
// calls for the sandbox do nothing.
func (o *Objects) end(s *Target, excess string) {
	if s.ending.Swap(true) {
		return
	}
	o.runs.Go(func() {
		defer s.ending.Store(false)
		s.End(excess)
	})
}

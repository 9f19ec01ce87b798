// Package spare keeps a few things that were used and can be used again, for a
// while: what is not wanted again in that time is dropped.
package spare

import (
	"sync"
	"time"
)

// Config bounds a Shelf.
type Config[T any] struct {
	Most int           // so many are kept; 0: none
	Idle time.Duration // a thing that lay this long is dropped
	Drop func(T)       // called without locks, once for each thing that is not given out again
}

// Shelf holds things for their next use. The one that was put there last is
// taken first, so that those that too many were made of grow old. It holds no
// goroutine, and no timer while it is empty. Its methods may be called
// concurrently; a nil Shelf keeps nothing and has nothing.
type Shelf[T any] struct {
	cfg Config[T]

	mu     sync.Mutex
	things []thing[T] // guarded by mu; the oldest first
	timer  *time.Timer
	closed bool
}

type thing[T any] struct {
	it    T
	since time.Time
}

// New makes a shelf.
func New[T any](cfg Config[T]) *Shelf[T] { return &Shelf[T]{cfg: cfg} }

// Take gives out a thing. ok is false when there is none.
func (s *Shelf[T]) Take() (it T, ok bool) {
	if s == nil {
		return it, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.things) - 1
	if last < 0 {
		return it, false
	}
	it, ok = s.things[last].it, true
	s.things[last] = thing[T]{}
	s.things = s.things[:last]
	if last == 0 {
		s.timer.Stop()
	}
	return it, ok
}

// Put keeps a thing, and reports false where it cannot: then it is still the
// caller's.
func (s *Shelf[T]) Put(it T) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.things) >= s.cfg.Most {
		return false
	}
	s.things = append(s.things, thing[T]{it, time.Now()})
	if len(s.things) == 1 {
		s.arm(s.cfg.Idle)
	}
	return true
}

// arm is called with mu held.
func (s *Shelf[T]) arm(d time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.expire)
		return
	}
	s.timer.Reset(d)
}

// expire drops what has lain too long.
func (s *Shelf[T]) expire() {
	s.mu.Lock()
	var old []T
	for len(s.things) > 0 && time.Since(s.things[0].since) >= s.cfg.Idle {
		old = append(old, s.things[0].it)
		s.things = s.things[1:]
	}
	if len(s.things) > 0 {
		s.arm(s.cfg.Idle - time.Since(s.things[0].since))
	}
	s.mu.Unlock()
	for _, it := range old {
		s.cfg.Drop(it)
	}
}

// Len is how many things lie here.
func (s *Shelf[T]) Len() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.things)
}

// Empty drops everything.
func (s *Shelf[T]) Empty() { s.dropAll(false) }

// Close drops everything; nothing can be put here afterwards. It may be called
// more than once.
func (s *Shelf[T]) Close() { s.dropAll(true) }

func (s *Shelf[T]) dropAll(forGood bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	left := s.things
	s.things, s.closed = nil, s.closed || forGood
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	for _, t := range left {
		s.cfg.Drop(t.it)
	}
}

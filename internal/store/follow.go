package store

import (
	"slices"
	"sync"
)

// Follower is told what becomes of the steps of Updates and notes. Its methods are called between
// steps, never while one runs, and one at a time. They must not block.
type Follower interface {
	// Ran is called after the steps of an Update, or after all steps of notes. If kept is false, what they
	// have done in the transaction is undone.
	Ran(kept bool)
	// Ended is called after each transaction. If committed is false, it was undone, or its outcome is unknown.
	Ended(committed bool)
}

type followers struct {
	mu  sync.Mutex
	all []Follower
}

// Follow lets f follow later transactions until the Store is closed.
func (s *Store) Follow(f Follower) {
	s.followers.mu.Lock()
	defer s.followers.mu.Unlock()
	s.followers.all = append(slices.Clip(s.followers.all), f)
}

func (f *followers) list() []Follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

func (f *followers) ran(kept bool) {
	for _, one := range f.list() {
		one.Ran(kept)
	}
}

func (f *followers) ended(committed bool) {
	for _, one := range f.list() {
		one.Ended(committed)
	}
}

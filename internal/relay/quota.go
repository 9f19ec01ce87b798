package relay

import (
	"errors"
	"sync"
	"time"
)

// patience is how long processes may take to end, and the relay may take to send a signal or to close, before the
// container's processor limit is lifted. Usually they take less, and lifting a limit may need a call of an engine.
const patience = 100 * time.Millisecond

// quota is the processor limit of a container, which several callers may have lifted.
type quota struct {
	raise func() (restore func() error) // Config.Lift

	mu     sync.Mutex // held while the limit is changed
	lifted int        // how many callers have lifted it and not restored it
	lower  func() error
}

// lift lifts the limit until the caller calls restore. It returns false if the limit cannot be lifted.
func (q *quota) lift() bool {
	if q.raise == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lifted++; q.lifted == 1 {
		q.lower = q.raise()
	}
	return true
}

// restore sets the limit again, unless other callers have lifted it as well.
func (q *quota) restore() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lifted--; q.lifted > 0 {
		return nil
	}
	return q.lower()
}

// hurry lifts the limit if the caller does not call done within patience. done reports whether the limit was lifted. It
// does not restore the limit.
func (s *Sandbox) hurry() (done func() (lifted bool)) {
	var mu sync.Mutex
	lifted, over := false, false // guarded by mu
	slow := time.AfterFunc(patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			lifted = s.quota.lift()
		}
	})
	return func() bool {
		slow.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
		return lifted
	}
}

// urgent carries out a list that ends or interrupts a program. Many tasks with a small share can delay the relay for
// longer than a minute, so the limit is lifted until the relay has answered. If the limit cannot be set again, the
// sandbox is given up.
func (s *Sandbox) urgent(l *list) (reply, error) {
	done := s.hurry()
	r, err := s.c.run(l)
	if done() {
		if failed := s.quota.restore(); failed != nil {
			s.c.close()
			err = errors.Join(err, failed)
		}
	}
	return r, err
}

package stream

import (
	"io"
	"sync"
	"time"
)

// Switch passes a stream of a session's interpreter to the run that is going. It
// keeps the first 64 KiB that are written between two runs for the next run. What
// exceeds that is dropped, and slowly: reading it costs the server's time. Its methods
// may be called concurrently.
type Switch struct {
	mu   sync.Mutex
	to   io.Writer // nil: no run is going
	late []byte

	turned chan struct{} // to was changed
	rest   func(turned <-chan struct{})
}

const (
	keepLate = 64 << 10
	restLate = 20 * time.Millisecond // after each part that is dropped; a part has up to 64 KiB
)

// NewSwitch returns a Switch that passes to nobody.
func NewSwitch() *Switch {
	return &Switch{turned: make(chan struct{}, 1), rest: func(turned <-chan struct{}) {
		t := time.NewTimer(restLate)
		defer t.Stop()
		select {
		case <-turned:
		case <-t.C:
		}
	}}
}

// Write takes bytes of the interpreter, or of a thread that outlived its run. It never
// fails.
func (s *Switch) Write(p []byte) (int, error) {
	if s.take(p) {
		s.rest(s.turned)
	}
	return len(p), nil
}

// take passes on or keeps bytes. It reports whether it dropped some.
func (s *Switch) take(p []byte) (dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		_, _ = s.to.Write(p)
		return false
	}
	n := min(len(p), keepLate-len(s.late))
	s.late = append(s.late, p[:n]...)
	return n < len(p)
}

// Turn passes what was kept, and what follows, to a writer; nil: to nobody.
func (s *Switch) Turn(to io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
	select {
	case s.turned <- struct{}{}:
	default:
	}
	if to != nil && len(s.late) > 0 {
		_, _ = to.Write(s.late)
		s.late = nil
	}
}

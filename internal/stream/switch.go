package stream

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Switch passes a stream of a session's interpreter to the current run. Between two runs it
// keeps up to 64 KiB for the next run. It drops further output, which it tells that run, and
// pauses the reader each time so that reading it takes little of the server's time. Its methods
// may be called concurrently.
type Switch struct {
	mu      sync.Mutex
	to      io.Writer // writer of the current run; nil: no run
	late    []byte
	dropped int64 // bytes since the last run

	turned chan struct{} // gets a token when to was changed
	rest   func(turned <-chan struct{})
}

const (
	keepLate = 64 << 10
	restLate = 20 * time.Millisecond // pause after each dropped part, which has up to 64 KiB
)

// NewSwitch returns a Switch without a current run.
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

// Write takes output of the interpreter, or of a thread that has outlived its run. It never
// fails.
func (s *Switch) Write(p []byte) (int, error) {
	if s.take(p) {
		s.rest(s.turned)
	}
	return len(p), nil
}

// take passes on or keeps p. It reports whether it dropped some of it.
func (s *Switch) take(p []byte) (dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		_, _ = s.to.Write(p)
		return false
	}
	n := min(len(p), keepLate-len(s.late))
	s.late = append(s.late, p[:n]...)
	s.dropped += int64(len(p) - n)
	return n < len(p)
}

// Turn passes the kept output and all further output to a writer. Between them, a line says how
// much was dropped. A nil writer ends the current run.
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
	if to != nil && s.dropped > 0 {
		_, _ = fmt.Fprintf(to, "\n[%d more bytes were written between two runs, and dropped]\n", s.dropped)
		s.dropped = 0
	}
}

package engine

import (
	"context"
	"maps"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// showing hands what a program shows to a writer that wants it as it comes, as
// capture does with a stream: from a goroutine of its own, for which the program
// does not wait. What is held for it is bounded by what a driver may say. The nil
// showing is for nobody.
type showing struct {
	to   sandboxmcp.ResultWriter
	mask *redact.Masker // nil: there is nothing to mask
	more chan struct{}  // something is there for to
	sent chan struct{}  // closed when to has everything

	mu     sync.Mutex
	list   []sandboxmcp.RichResult // not handed over yet
	closed bool
}

func newShowing(to sandboxmcp.ResultWriter, mask *redact.Masker) *showing {
	if to == nil {
		return nil
	}
	s := &showing{to: to, mask: mask, more: make(chan struct{}, 1), sent: make(chan struct{})}
	go s.relay()
	return s
}

// add takes a value that the program shows. The writer gets a copy: it may still
// look at it when the result is somebody else's.
func (s *showing) add(r sandboxmcp.RichResult) {
	if s == nil {
		return
	}
	r = maskResult(s.mask, maps.Clone(r))
	s.mu.Lock()
	if !s.closed {
		s.list = append(s.list, r)
	}
	s.mu.Unlock()
	s.nudge()
}

// close ends it: what comes later is not the program's any more.
func (s *showing) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.nudge()
}

func (s *showing) nudge() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *showing) relay() {
	defer close(s.sent)
	for {
		s.mu.Lock()
		list, closed := s.list, s.closed
		s.list = nil
		s.mu.Unlock()
		for _, r := range list {
			s.to.WriteResult(r)
		}
		if closed {
			return
		}
		<-s.more
	}
}

// flush waits until the writer has everything, or ctx ends.
func (s *showing) flush(ctx context.Context) {
	if s == nil {
		return
	}
	select {
	case <-s.sent:
	case <-ctx.Done():
	}
}

package process

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOnlyProcessorTimeIsSlow: a call that waits for a processor costs nothing, and one
// that uses it costs what it uses, from the second on.
func TestOnlyProcessorTimeIsSlow(t *testing.T) {
	work := func() {
		for began := threadTime(); threadTime()-began < 2*time.Millisecond; {
		}
	}
	wait := func() { _ = unix.Nanosleep(&unix.Timespec{Nsec: 1_000_000}, nil) }
	var s slowCalls
	if got := s.do(func() {}); got != 0 {
		t.Errorf("a usual call: got %v, want 0", got)
	}
	if got := s.do(wait); got != 0 {
		t.Errorf("the first slow call: got %v, want 0", got)
	}
	if got := s.do(wait); got != 0 {
		t.Errorf("a call that waits: got %v, want 0", got)
	}
	if got := s.do(work); got < 2*time.Millisecond {
		t.Errorf("a call that works: got %v, want 2ms or more", got)
	}
}

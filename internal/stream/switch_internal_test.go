package stream

import (
	"bytes"
	"strings"
	"testing"
)

// Output between two runs is kept for the next one up to a bound. Beyond it each write is
// slowed down, because it costs the server time and has no reader.
func TestSwitchHoldsUpWhoWritesToNobody(t *testing.T) {
	r, rests := NewSwitch(), 0
	r.rest = func(<-chan struct{}) { rests++ }
	write := func(n int) {
		t.Helper()
		if got, err := r.Write([]byte(strings.Repeat("x", n))); got != n || err != nil {
			t.Fatalf("wrote %d of %d, %v", got, n, err)
		}
	}
	write(keepLate - 10)
	write(10)
	if rests != 0 {
		t.Error("got the writer held up while there is room, want it to go on")
	}
	for range 5 {
		write(1 << 10)
	}
	if rests != 5 {
		t.Errorf("got the writer held up %d times, want once for each of 5 parts without a reader", rests)
	}
	var next bytes.Buffer
	r.Turn(&next)
	const told = "\n[5120 more bytes were written between two runs, and dropped]\n"
	if got := next.String()[keepLate:]; got != told {
		t.Errorf("behind what was kept: got %.200q, want %q", got, told)
	}
	write(1 << 20)
	if rests != 5 || next.Len() != keepLate+len(told)+1<<20 {
		t.Errorf("the next run has %d bytes, want what was kept and all of its own; held up %d times", next.Len(), rests)
	}
	next.Reset()
	r.Turn(nil)
	write(5)
	r.Turn(&next)
	if next.Len() != 5 {
		t.Errorf("the next reader: got %d bytes, want all that came after", next.Len())
	}
}

package backend_test

import (
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// A call that a program has made slow costs what it took. One that has waited for the
// processor costs a bounded time.
func TestCostOfCall(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		20 * time.Microsecond: 0,
		4 * time.Millisecond:  4 * time.Millisecond,
		3 * time.Second:       50 * time.Millisecond,
	} {
		if got := backend.CostOfCall(took); got != want {
			t.Errorf("CostOfCall(%v): got %v, want %v", took, got, want)
		}
	}
}

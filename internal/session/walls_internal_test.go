package session

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// wall is a sandbox of which only the walls are there.
type wall struct {
	backend.Sandbox

	reads atomic.Int32
	tier  sandboxmcp.Tier
	err   error
}

func (w *wall) Isolation(context.Context) (sandboxmcp.Isolation, error) {
	w.reads.Add(1)
	return sandboxmcp.Isolation{Tier: w.tier}, w.err
}

func TestWallsOfALivingSandbox(t *testing.T) {
	sb := &wall{tier: sandboxmcp.TierL3}
	var w watched
	see := func(want sandboxmcp.Tier, reads int32) {
		t.Helper()
		if got := <-w.look(t.Context(), sb); got.Walls.Tier != want {
			t.Errorf("got tier %s, want %s", got.Walls.Tier, want)
		}
		if got := sb.reads.Load(); got != reads {
			t.Errorf("read %d times, want %d", got, reads)
		}
	}
	if !w.due(wallsRest) {
		t.Error("walls that were never read: got not due, want due")
	}
	see(sandboxmcp.TierL3, 1)
	see(sandboxmcp.TierL3, 1)
	if w.due(wallsRest) {
		t.Error("walls that were read just now: got due, want not due")
	}

	sb.tier = sandboxmcp.TierL2
	w.at = time.Now().Add(-wallsRest)
	w.read(t.Context(), sb, wallsRest) // after a run
	see(sandboxmcp.TierL2, 2)

	sb.tier = sandboxmcp.TierL1
	w.at = time.Now().Add(-wallsHold)
	see(sandboxmcp.TierL1, 3) // beside one that comes late

	sb.err = errors.New("not to be read")
	w.at = time.Now().Add(-wallsHold)
	for n := range int32(2) { // what could not be read is read again
		if got := <-w.look(t.Context(), sb); !errors.Is(got.Err, sb.err) || sb.reads.Load() != 4+n {
			t.Errorf("got %+v after %d reads", got, sb.reads.Load())
		}
	}

	w.close()
	w.read(t.Context(), sb, 0)
	if got := sb.reads.Load(); got != 5 {
		t.Errorf("walls of a closed sandbox: got another reading, want none")
	}
}

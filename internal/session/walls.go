package session

import (
	"context"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// Ages of a session's observed walls. After a run they are observed again if they are
// older than wallsRest, so that quick successive runs do not wait for that. A run
// reports them only if they are younger than wallsHold, and else observes them again.
const (
	wallsRest = time.Second
	wallsHold = 10 * time.Second
)

// watched holds the walls of a session's sandbox as they were last observed.
type watched struct {
	mu          sync.Mutex // held while they are observed
	observation run.Observation
	at          time.Time // zero: never
	closed      bool
}

// look returns the last observation if it is recent, or begins a new one.
func (w *watched) look(ctx context.Context, sb backend.Sandbox) <-chan run.Observation {
	c := make(chan run.Observation, 1)
	if w.mu.TryLock() { // else another goroutine observes them
		known := !w.at.IsZero() && time.Since(w.at) < wallsHold
		if known {
			c <- w.observation
		}
		w.mu.Unlock()
		if known {
			return c
		}
	}
	go func() { c <- w.read(context.WithoutCancel(ctx), sb, 0) }()
	return c
}

// read observes the walls, unless that was done within rest. It does not keep a failure.
func (w *watched) read(ctx context.Context, sb backend.Sandbox, rest time.Duration) run.Observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.at.IsZero() && time.Since(w.at) < rest {
		return w.observation
	}
	iso, err := sb.Isolation(ctx)
	w.observation, w.at = run.Observation{Walls: iso, Err: err}, time.Now()
	if err != nil {
		w.at = time.Time{}
	}
	return w.observation
}

// stale drops the last observation, because the sandbox was changed.
func (w *watched) stale() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = time.Time{}
}

// due reports whether the last observation is at least rest old.
func (w *watched) due(rest time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && time.Since(w.at) >= rest
}

// close waits for an observation that is going on, and prevents new ones.
func (w *watched) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

package session

import (
	"context"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Observation is the result of observing a sandbox's walls.
type Observation struct {
	iso sandboxmcp.Isolation
	err error
}

// Observe observes the walls of a sandbox while its program runs. The channel delivers
// once.
func Observe(ctx context.Context, sb backend.Sandbox) <-chan Observation {
	c := make(chan Observation, 1)
	ctx = context.WithoutCancel(ctx)
	go func() {
		iso, err := sb.Isolation(ctx)
		c <- Observation{iso, err}
	}()
	return c
}

// Isolation returns the observed walls, or isolation_unavailable if they are weaker than
// minimum. If the sandbox ended before they could be observed, it reports tier L0 and no
// walls.
func (s Observation) Isolation(minimum sandboxmcp.Tier) (*sandboxmcp.Isolation, error) {
	if s.err == nil && !s.iso.Tier.AtLeast(minimum) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the sandbox was observed to have isolation %s, but %s is required", s.iso.Tier, minimum)
	}
	if s.err == nil {
		return &s.iso, nil
	}
	if sandboxmcp.CodeOf(s.err) == sandboxmcp.CodeIsolationUnavailable {
		return nil, s.err
	}
	iso := s.iso
	iso.Tier, iso.Walls = sandboxmcp.TierL0, []string{}
	iso.Weak = []string{"the sandbox ended before its walls could be read"}
	return &iso, nil
}

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
	observation Observation
	at          time.Time // zero: never
	closed      bool
}

// look returns the last observation if it is recent, or begins a new one.
func (w *watched) look(ctx context.Context, sb backend.Sandbox) <-chan Observation {
	c := make(chan Observation, 1)
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
func (w *watched) read(ctx context.Context, sb backend.Sandbox, rest time.Duration) Observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.at.IsZero() && time.Since(w.at) < rest {
		return w.observation
	}
	iso, err := sb.Isolation(ctx)
	w.observation, w.at = Observation{iso, err}, time.Now()
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

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// sight is what looking at the walls came to.
type sight struct {
	iso sandboxmcp.Isolation
	err error
}

// look reads the walls while the program runs.
func look(ctx context.Context, sb backend.Sandbox) <-chan sight {
	c := make(chan sight, 1)
	ctx = context.WithoutCancel(ctx)
	go func() {
		iso, err := sb.Isolation(ctx)
		c <- sight{iso, err}
	}()
	return c
}

// get returns the walls. A sandbox that was gone before it could be looked at
// is reported as one of which nothing is known.
func (s sight) get(minimum sandboxmcp.Tier) (*sandboxmcp.Isolation, error) {
	if s.err == nil && !s.iso.Tier.AtLeast(minimum) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the sandbox was seen to have isolation %s, and %s is demanded", s.iso.Tier, minimum)
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

// How old what was read of a session's walls may be when a run reports it. They
// are read anew after a run that has answered, so that runs close to each other
// do not wait for it; and beside one that comes late.
const (
	wallsRest = time.Second
	wallsHold = 10 * time.Second
)

// watched are the walls of a sandbox that lives on, as they were last read.
type watched struct {
	mu     sync.Mutex // held while they are read
	sight  sight
	at     time.Time // zero: never
	closed bool
}

// look tells how the walls stand, or begins to read it.
func (w *watched) look(ctx context.Context, sb backend.Sandbox) <-chan sight {
	c := make(chan sight, 1)
	if w.mu.TryLock() { // else they are being read
		known := !w.at.IsZero() && time.Since(w.at) < wallsHold
		if known {
			c <- w.sight
		}
		w.mu.Unlock()
		if known {
			return c
		}
	}
	go func() { c <- w.read(context.WithoutCancel(ctx), sb, 0) }()
	return c
}

// read reads the walls, unless that was done within rest. What could not be read
// is not kept.
func (w *watched) read(ctx context.Context, sb backend.Sandbox, rest time.Duration) sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.at.IsZero() && time.Since(w.at) < rest {
		return w.sight
	}
	iso, err := sb.Isolation(ctx)
	w.sight, w.at = sight{iso, err}, time.Now()
	if err != nil {
		w.at = time.Time{}
	}
	return w.sight
}

// stale has them read anew: something about them was changed.
func (w *watched) stale() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = time.Time{}
}

// due tells that nobody has read them for so long.
func (w *watched) due(rest time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && time.Since(w.at) >= rest
}

// close waits for who is reading, and lets nobody begin.
func (w *watched) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

package run

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Observation is the result of observing a sandbox's walls.
type Observation struct {
	Walls sandboxmcp.Isolation
	Err   error // why they could not be observed
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
func (o Observation) Isolation(minimum sandboxmcp.Tier) (*sandboxmcp.Isolation, error) {
	if o.Err == nil && !o.Walls.Tier.AtLeast(minimum) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the sandbox was observed to have isolation %s, but %s is required", o.Walls.Tier, minimum)
	}
	if o.Err == nil {
		return &o.Walls, nil
	}
	if sandboxmcp.CodeOf(o.Err) == sandboxmcp.CodeIsolationUnavailable {
		return nil, o.Err
	}
	iso := o.Walls
	iso.Tier, iso.Walls = sandboxmcp.TierL0, []string{}
	iso.Weak = []string{"the sandbox ended before its walls could be read"}
	return &iso, nil
}

package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
)

// openLimits makes what says which limits hold for requests.
func (e *Engine) openLimits() {
	e.limits = limits.NewPolicy(limits.New(e.store, e.cfg.Now), e.audit, limits.Rules{
		Defaults: e.cfg.Limits, Ceilings: e.cfg.Ceilings, MostTasks: e.queue.MostTasks(),
	})
}

// SetLimits changes the limits of a namespace for requests that set none. They are stored
// in the state directory, and every process that uses it applies them from its next
// request on. Existing sessions keep their limits. The audit entry is written in the same
// transaction. An empty change returns the current limits and changes nothing.
func (e *Engine) SetLimits(ctx context.Context, c sandboxmcp.Caller, change sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	return e.limits.Change(ctx, c, change)
}

package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// keptLimits returns the limits stored for a namespace, 0 where none is stored, and the
// limits for a request that sets none. The latter are the stored ones over the configured
// ones, clamped to the ceilings, which may have been lowered since.
func (e *Engine) keptLimits(ctx context.Context, ns sandboxmcp.Namespace) (kept, inForce sandboxmcp.Limits, err error) {
	if kept, err = e.limits.Kept(ctx, ns); err != nil {
		return kept, kept, err
	}
	return kept, e.limitRules().InForce(kept), nil
}

// limitRules returns the limits of the settings.
func (e *Engine) limitRules() limits.Rules {
	return limits.Rules{Defaults: e.cfg.Limits, Ceilings: e.cfg.Ceilings, MostTasks: e.queue.MostTasks()}
}

// limit sets the limits of a request. For each limit the first of these that sets it
// wins: the request; its live session or, without one, the namespace and then the
// settings.
func (e *Engine) limit(ctx context.Context, x *execution) error {
	asked := x.req.Limits
	if err := asked.Check(); err != nil {
		return err
	}
	var bound, base sandboxmcp.Limits
	if x.base != nil {
		bound, base = *x.base, *x.base
	} else {
		var err error
		if bound, base, err = e.keptLimits(ctx, x.who.Namespace); err != nil {
			return err
		}
	}
	if x.req.Modest {
		asked = asked.Under(bound)
	}
	var err error
	x.limits, x.clamped, err = e.limitRules().Apply(asked, base, x.req.Strict)
	return err
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
	if err := change.Limits.Check(); err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	rules := e.limitRules()
	asked, over := change.Limits.Clamp(rules.Ceilings)
	if len(over) > 0 && change.Strict {
		return sandboxmcp.LimitsChanged{}, rules.CapError(over)
	}
	done := sandboxmcp.LimitsChanged{Clamped: over}
	if asked == (sandboxmcp.Limits{}) && !change.Reset {
		_, now, err := e.keptLimits(ctx, c.Namespace)
		done.Previous, done.Current = now, now
		return done, err
	}
	alter := func(kept sandboxmcp.Limits) (sandboxmcp.Limits, error) {
		done.Previous = rules.InForce(kept)
		if change.Reset {
			kept = sandboxmcp.Limits{}
		}
		kept = asked.Over(kept)
		done.Current = rules.InForce(kept)
		return kept, nil
	}
	record := func() store.Op {
		return e.audit.Op(&sandboxmcp.AuditEntry{
			Action: "limits_changed", Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor,
			Detail: limits.Describe(done, change.Reset), Metadata: map[string]any{"previous": done.Previous, "current": done.Current, "clamped": over},
		})
	}
	if err := e.limits.Change(ctx, c.Namespace, alter, record); err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	return done, nil
}

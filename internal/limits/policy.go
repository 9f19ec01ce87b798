package limits

import (
	"context"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Policy says which limits hold for requests and sessions. Its methods may be called
// concurrently.
type Policy struct {
	table *Table
	audit *audit.Log
	rules atomic.Pointer[Rules]
}

// NewPolicy returns the policy over the limits that a table keeps. Changes are recorded in
// log.
func NewPolicy(t *Table, log *audit.Log, r Rules) *Policy {
	p := &Policy{table: t, audit: log}
	p.rules.Store(&r)
	return p
}

// SetRules replaces the configured limits and ceilings, for requests and sessions to come.
func (p *Policy) SetRules(defaults, ceilings sandboxmcp.Limits) {
	r := *p.rules.Load()
	r.Defaults, r.Ceilings = defaults, ceilings
	p.rules.Store(&r)
}

// Ceilings returns the largest limits that a request may ask for.
func (p *Policy) Ceilings() sandboxmcp.Limits { return p.rules.Load().Ceilings }

// InForce returns the limits for a request of a namespace that sets none: those that the
// namespace keeps over the configured ones, clamped to the ceilings, which may have been
// lowered since.
func (p *Policy) InForce(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.Limits, error) {
	kept, err := p.table.Kept(ctx, ns)
	if err != nil {
		return kept, err
	}
	return p.rules.Load().InForce(kept), nil
}

// Ask is what a request says about its limits.
type Ask struct {
	Limits  sandboxmcp.Limits  // 0: not set
	Session *sandboxmcp.Limits // those of its live session; nil: none
	Modest  bool               // limits of the session, or of the namespace, are ceilings
	Strict  bool               // a limit above its ceiling is an error
	Most    sandboxmcp.Limits  // ceilings of the backend, below those of the settings; 0: none
}

// Of returns the limits of a request, and which of them were lowered. For each limit the
// first of these that sets it wins: the request; its live session or, without one, the
// namespace and then the settings. It fails with limit_exceeds_cap if the request is
// strict, and with invalid_argument.
func (p *Policy) Of(ctx context.Context, ns sandboxmcp.Namespace, a Ask) (l sandboxmcp.Limits, clamped []string, err error) {
	if err = a.Limits.Check(); err != nil {
		return l, nil, err
	}
	rules := *p.rules.Load()
	rules.Ceilings = rules.Ceilings.Under(a.Most)
	var bound, base sandboxmcp.Limits
	if a.Session != nil {
		bound, base = *a.Session, *a.Session
	} else {
		if bound, err = p.table.Kept(ctx, ns); err != nil {
			return l, nil, err
		}
		base = rules.InForce(bound)
	}
	asked := a.Limits
	if a.Modest {
		asked = asked.Under(bound)
	}
	return rules.Apply(asked, base, a.Strict)
}

// Change changes the limits that the caller's namespace keeps. The audit entry is written
// in the same transaction. An empty change returns the current limits and changes nothing.
func (p *Policy) Change(ctx context.Context, c sandboxmcp.Caller, change sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	rules := p.rules.Load()
	if err := change.Limits.Check(); err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	asked, over := change.Limits.Clamp(rules.Ceilings)
	if len(over) > 0 && change.Strict {
		return sandboxmcp.LimitsChanged{}, rules.CapError(over)
	}
	done := sandboxmcp.LimitsChanged{Clamped: over}
	if asked == (sandboxmcp.Limits{}) && !change.Reset {
		now, err := p.InForce(ctx, c.Namespace)
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
		return p.audit.Op(&sandboxmcp.AuditEntry{
			Action: "limits_changed", Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor,
			Detail: Describe(done, change.Reset), Metadata: map[string]any{"previous": done.Previous, "current": done.Current, "clamped": over},
		})
	}
	if err := p.table.Change(ctx, c.Namespace, alter, record); err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	return done, nil
}

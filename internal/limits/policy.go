package limits

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Bounds are the limits of the settings.
type Bounds struct {
	Default   sandboxmcp.Limits // where neither the request nor the namespace sets one
	Ceilings  sandboxmcp.Limits
	Processes int // the most that one sandbox can get, because all share the machine's tasks; 0: not bounded
}

// Policy says which limits hold for requests and sessions. Its methods may be called
// concurrently.
type Policy struct {
	table  *Table
	audit  *audit.Log
	bounds Bounds
}

// NewPolicy returns the policy over the limits that a table keeps. Changes are recorded in
// log.
func NewPolicy(t *Table, log *audit.Log, b Bounds) *Policy { return &Policy{t, log, b} }

// InForce returns the limits for a request of a namespace that sets none: those that the
// namespace keeps over the configured ones, clamped to the ceilings, which may have been
// lowered since.
func (p *Policy) InForce(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.Limits, error) {
	kept, err := p.table.Kept(ctx, ns)
	if err != nil {
		return kept, err
	}
	return p.inForce(kept), nil
}

func (p *Policy) inForce(kept sandboxmcp.Limits) sandboxmcp.Limits {
	l, _ := kept.Over(p.bounds.Default).Clamp(p.bounds.Ceilings)
	return l
}

// Ask is what a request says about its limits.
type Ask struct {
	Limits  sandboxmcp.Limits  // 0: not set
	Session *sandboxmcp.Limits // those of its live session; nil: none
	Modest  bool               // limits of the session, or of the namespace, are ceilings
	Strict  bool               // a limit above its ceiling is an error
}

// Of returns the limits of a request, and which of them were lowered. For each limit the
// first of these that sets it wins: the request; its live session or, without one, the
// namespace and then the settings. It fails with limit_exceeds_cap if the request is
// strict, and with invalid_argument.
func (p *Policy) Of(ctx context.Context, ns sandboxmcp.Namespace, a Ask) (l sandboxmcp.Limits, clamped []string, err error) {
	if err = a.Limits.Check(); err != nil {
		return l, nil, err
	}
	var bound, base sandboxmcp.Limits
	if a.Session != nil {
		bound, base = *a.Session, *a.Session
	} else {
		if bound, err = p.table.Kept(ctx, ns); err != nil {
			return l, nil, err
		}
		base = p.inForce(bound)
	}
	asked := a.Limits
	if a.Modest {
		asked = asked.Under(bound)
	}
	l, clamped = asked.Over(base).Clamp(p.bounds.Ceilings)
	if len(clamped) > 0 && a.Strict {
		return l, clamped, p.capError(clamped)
	}
	// A limit above what one sandbox can get is lowered and listed, even if the request is strict.
	if most := p.bounds.Processes; most > 0 && l.MaxProcesses > most {
		l.MaxProcesses = most
		if !slices.Contains(clamped, "max_processes") {
			clamped = append(clamped, "max_processes")
		}
	}
	return l, clamped, nil
}

func (p *Policy) capError(over []string) error {
	top := p.bounds.Ceilings
	return sandboxmcp.Errorf(sandboxmcp.CodeLimitExceedsCap, "%s is above its ceiling; the ceilings are max_ram_mb %d, max_cpu_cores %g, timeout_seconds %g, max_processes %d, max_output_bytes %d",
		strings.Join(over, ", "), top.MaxRAMMB, top.MaxCPUCores, top.TimeoutSeconds, top.MaxProcesses, top.MaxOutputBytes)
}

// Change changes the limits that the caller's namespace keeps. The audit entry is written
// in the same transaction. An empty change returns the current limits and changes nothing.
func (p *Policy) Change(ctx context.Context, c sandboxmcp.Caller, change sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	if err := change.Limits.Check(); err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	asked, over := change.Limits.Clamp(p.bounds.Ceilings)
	if len(over) > 0 && change.Strict {
		return sandboxmcp.LimitsChanged{}, p.capError(over)
	}
	done := sandboxmcp.LimitsChanged{Clamped: over}
	if asked == (sandboxmcp.Limits{}) && !change.Reset {
		now, err := p.InForce(ctx, c.Namespace)
		done.Previous, done.Current = now, now
		return done, err
	}
	alter := func(kept sandboxmcp.Limits) (sandboxmcp.Limits, error) {
		done.Previous = p.inForce(kept)
		if change.Reset {
			kept = sandboxmcp.Limits{}
		}
		kept = asked.Over(kept)
		done.Current = p.inForce(kept)
		return kept, nil
	}
	record := func() store.Op {
		return p.audit.Op(&sandboxmcp.AuditEntry{
			Action: "limits_changed", Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor,
			Detail: detail(done, change.Reset), Metadata: map[string]any{"previous": done.Previous, "current": done.Current, "clamped": over},
		})
	}
	if err := p.table.Change(ctx, c.Namespace, alter, record); err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	return done, nil
}

// detail lists the limits that have changed.
func detail(d sandboxmcp.LimitsChanged, reset bool) string {
	var words []string
	note := func(name string, was, is any) {
		if was != is {
			words = append(words, fmt.Sprintf("%s %v → %v", name, was, is))
		}
	}
	note("max_ram_mb", d.Previous.MaxRAMMB, d.Current.MaxRAMMB)
	note("max_cpu_cores", d.Previous.MaxCPUCores, d.Current.MaxCPUCores)
	note("timeout_seconds", d.Previous.TimeoutSeconds, d.Current.TimeoutSeconds)
	note("max_processes", d.Previous.MaxProcesses, d.Current.MaxProcesses)
	note("max_output_bytes", d.Previous.MaxOutputBytes, d.Current.MaxOutputBytes)
	text := strings.Join(words, ", ")
	switch {
	case text == "" && reset:
		return "reset"
	case text == "":
		return "kept as they are"
	case reset:
		return "reset: " + text
	}
	return text
}

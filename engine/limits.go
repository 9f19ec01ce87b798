package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// keptLimits returns the limits stored for a namespace, 0 where none is stored, and the
// limits for a request that sets none. The latter are the stored ones over the configured
// ones, clamped to the ceilings, which may have been lowered since.
func (e *Engine) keptLimits(ctx context.Context, ns sandboxmcp.Namespace) (kept, inForce sandboxmcp.Limits, err error) {
	if kept, err = e.limits.Kept(ctx, ns); err != nil {
		return kept, kept, err
	}
	return kept, e.inForce(kept), nil
}

func (e *Engine) inForce(kept sandboxmcp.Limits) sandboxmcp.Limits {
	l, _ := kept.Over(e.cfg.Limits).Clamp(e.cfg.Ceilings)
	return l
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
	x.limits, x.clamped = asked.Over(base).Clamp(e.cfg.Ceilings)
	if len(x.clamped) > 0 && x.req.Strict {
		return e.capError(x.clamped)
	}
	// All sandboxes share the machine's tasks. A limit above what one sandbox can get is lowered and
	// listed in clamped, even if the request is strict.
	if most := e.queue.MostTasks() / sandboxmcp.TasksPerProcess; most > 0 && x.limits.MaxProcesses > most {
		x.limits.MaxProcesses = most
		if !slices.Contains(x.clamped, "max_processes") {
			x.clamped = append(x.clamped, "max_processes")
		}
	}
	return nil
}

func (e *Engine) capError(over []string) error {
	top := e.cfg.Ceilings
	return sandboxmcp.Errorf(sandboxmcp.CodeLimitExceedsCap, "%s is above its ceiling; the ceilings are max_ram_mb %d, max_cpu_cores %g, timeout_seconds %g, max_processes %d, max_output_bytes %d",
		strings.Join(over, ", "), top.MaxRAMMB, top.MaxCPUCores, top.TimeoutSeconds, top.MaxProcesses, top.MaxOutputBytes)
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
	asked, over := change.Limits.Clamp(e.cfg.Ceilings)
	if len(over) > 0 && change.Strict {
		return sandboxmcp.LimitsChanged{}, e.capError(over)
	}
	done := sandboxmcp.LimitsChanged{Clamped: over}
	if asked == (sandboxmcp.Limits{}) && !change.Reset {
		_, now, err := e.keptLimits(ctx, c.Namespace)
		done.Previous, done.Current = now, now
		return done, err
	}
	alter := func(kept sandboxmcp.Limits) (sandboxmcp.Limits, error) {
		done.Previous = e.inForce(kept)
		if change.Reset {
			kept = sandboxmcp.Limits{}
		}
		kept = asked.Over(kept)
		done.Current = e.inForce(kept)
		return kept, nil
	}
	record := func() store.Op {
		return e.audit.Op(&sandboxmcp.AuditEntry{
			Action: "limits_changed", Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor,
			Detail: limitsDetail(done, change.Reset), Metadata: map[string]any{"previous": done.Previous, "current": done.Current, "clamped": over},
		})
	}
	if err := e.limits.Change(ctx, c.Namespace, alter, record); err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	return done, nil
}

// limitsDetail lists the limits that have changed.
func limitsDetail(d sandboxmcp.LimitsChanged, reset bool) string {
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

package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
)

// openLimits makes the policy that decides which limits apply to a request.
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

// clampedValues returns what was asked of each limit that was lowered, unless it is a default, and
// what was given.
func (x *execution) clampedValues() map[string]map[string]float64 {
	asked, given := x.req.Limits, x.limits
	all := map[string][2]float64{
		"max_ram_mb":       {float64(asked.MaxRAMMB), float64(given.MaxRAMMB)},
		"max_cpu_cores":    {asked.MaxCPUCores, given.MaxCPUCores},
		"timeout_seconds":  {asked.TimeoutSeconds, given.TimeoutSeconds},
		"max_processes":    {float64(asked.MaxProcesses), float64(given.MaxProcesses)},
		"max_output_bytes": {float64(asked.MaxOutputBytes), float64(given.MaxOutputBytes)},
	}
	values := make(map[string]map[string]float64, len(x.clamped))
	for _, name := range x.clamped {
		values[name] = map[string]float64{"given": all[name][1]}
		if all[name][0] > 0 {
			values[name]["asked"] = all[name][0]
		}
	}
	return values
}

package limits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Rules are the limits of the settings.
type Rules struct {
	Defaults sandboxmcp.Limits // for what neither a request nor its namespace sets
	Ceilings sandboxmcp.Limits // no limit is above its ceiling

	// MostTasks is how many kernel tasks one sandbox can get, because all sandboxes share those
	// of the machine; 0: any number.
	MostTasks int
}

// InForce returns the limits for a request that sets none. They are those that its namespace
// keeps over the defaults, clamped to the ceilings, which may have been lowered since.
func (u Rules) InForce(kept sandboxmcp.Limits) sandboxmcp.Limits {
	l, _ := kept.Over(u.Defaults).Clamp(u.Ceilings)
	return l
}

// Apply returns the limits of a request and the names of those that were lowered. Limits that
// the request does not set are those of base. If strict is set, a limit above its ceiling fails
// with limit_exceeds_cap.
func (u Rules) Apply(asked, base sandboxmcp.Limits, strict bool) (l sandboxmcp.Limits, clamped []string, err error) {
	l, clamped = asked.Over(base).Clamp(u.Ceilings)
	if len(clamped) > 0 && strict {
		return l, clamped, u.CapError(clamped)
	}
	// A limit above what one sandbox can get is lowered and listed, even if the request is strict.
	if most := u.MostTasks / sandboxmcp.TasksPerProcess; most > 0 && l.MaxProcesses > most {
		l.MaxProcesses = most
		if !slices.Contains(clamped, "max_processes") {
			clamped = append(clamped, "max_processes")
		}
	}
	return l, clamped, nil
}

// CapError is the error for limits above their ceilings.
func (u Rules) CapError(over []string) error {
	top := u.Ceilings
	return sandboxmcp.Errorf(sandboxmcp.CodeLimitExceedsCap, "%s is above its ceiling; the ceilings are max_ram_mb %d, max_cpu_cores %g, timeout_seconds %g, max_processes %d, max_output_bytes %d",
		strings.Join(over, ", "), top.MaxRAMMB, top.MaxCPUCores, top.TimeoutSeconds, top.MaxProcesses, top.MaxOutputBytes)
}

// Describe lists the limits that have changed, for the audit log.
func Describe(d sandboxmcp.LimitsChanged, reset bool) string {
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

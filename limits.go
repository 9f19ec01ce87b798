package sandboxmcp

import (
	"math"
	"time"
)

// Limits bounds one execution. In a [Request] a field of 0 means the caller's default. In a
// result no field is 0.
type Limits struct {
	MaxRAMMB       int     `json:"max_ram_mb"`       // MiB of memory and swap of the whole sandbox, including its files
	MaxCPUCores    float64 `json:"max_cpu_cores"`    // cores, fractions allowed
	TimeoutSeconds float64 `json:"timeout_seconds"`  // wall clock, and CPU seconds per core
	MaxProcesses   int     `json:"max_processes"`    // the kernel's limit is 16 times as many tasks
	MaxOutputBytes int64   `json:"max_output_bytes"` // per stream; the run is ended at 16 times as many
}

// TasksPerProcess is the number of kernel tasks that are allowed for each allowed process.
// A thread is a task, and Node alone has eleven.
const TasksPerProcess = 16

// OutputKillFactor times MaxOutputBytes is the output of one stream after which the run is
// ended.
const OutputKillFactor = 16

// DefaultLimits returns the limits that apply without any setting.
func DefaultLimits() Limits {
	return Limits{MaxRAMMB: 512, MaxCPUCores: 1, TimeoutSeconds: 60, MaxProcesses: 10, MaxOutputBytes: 1_000_000}
}

// DefaultCeilings returns the largest limits that a caller may request on a machine with
// that many cores. An operator may lower them.
func DefaultCeilings(cores int) Limits {
	return Limits{MaxRAMMB: 8192, MaxCPUCores: float64(max(cores, 1)), TimeoutSeconds: 3600, MaxProcesses: 1024, MaxOutputBytes: 64 << 20}
}

// Timeout returns the wall-clock limit.
func (l Limits) Timeout() time.Duration {
	return time.Duration(l.TimeoutSeconds * float64(time.Second))
}

// MaxTasks returns the limit of kernel tasks.
func (l Limits) MaxTasks() int { return TasksPerProcess * l.MaxProcesses }

// Over returns l with the fields of base in place of its own fields that are 0.
func (l Limits) Over(base Limits) Limits {
	if l.MaxRAMMB == 0 {
		l.MaxRAMMB = base.MaxRAMMB
	}
	if l.MaxCPUCores == 0 {
		l.MaxCPUCores = base.MaxCPUCores
	}
	if l.TimeoutSeconds == 0 {
		l.TimeoutSeconds = base.TimeoutSeconds
	}
	if l.MaxProcesses == 0 {
		l.MaxProcesses = base.MaxProcesses
	}
	if l.MaxOutputBytes == 0 {
		l.MaxOutputBytes = base.MaxOutputBytes
	}
	return l
}

// Under returns l with each field lowered to that of bound, if bound has one.
func (l Limits) Under(bound Limits) Limits {
	lower := Limits{}
	if bound.MaxRAMMB > 0 && l.MaxRAMMB > bound.MaxRAMMB {
		lower.MaxRAMMB = bound.MaxRAMMB
	}
	if bound.MaxCPUCores > 0 && l.MaxCPUCores > bound.MaxCPUCores {
		lower.MaxCPUCores = bound.MaxCPUCores
	}
	if bound.TimeoutSeconds > 0 && l.TimeoutSeconds > bound.TimeoutSeconds {
		lower.TimeoutSeconds = bound.TimeoutSeconds
	}
	if bound.MaxProcesses > 0 && l.MaxProcesses > bound.MaxProcesses {
		lower.MaxProcesses = bound.MaxProcesses
	}
	if bound.MaxOutputBytes > 0 && l.MaxOutputBytes > bound.MaxOutputBytes {
		lower.MaxOutputBytes = bound.MaxOutputBytes
	}
	return lower.Over(l)
}

// Clamp returns l with each field lowered to its ceiling, and the JSON names of the fields
// that were above it.
func (l Limits) Clamp(ceiling Limits) (Limits, []string) {
	clamped := []string{}
	if l.MaxRAMMB > ceiling.MaxRAMMB {
		l.MaxRAMMB, clamped = ceiling.MaxRAMMB, append(clamped, "max_ram_mb")
	}
	if l.MaxCPUCores > ceiling.MaxCPUCores {
		l.MaxCPUCores, clamped = ceiling.MaxCPUCores, append(clamped, "max_cpu_cores")
	}
	if l.TimeoutSeconds > ceiling.TimeoutSeconds {
		l.TimeoutSeconds, clamped = ceiling.TimeoutSeconds, append(clamped, "timeout_seconds")
	}
	if l.MaxProcesses > ceiling.MaxProcesses {
		l.MaxProcesses, clamped = ceiling.MaxProcesses, append(clamped, "max_processes")
	}
	if l.MaxOutputBytes > ceiling.MaxOutputBytes {
		l.MaxOutputBytes, clamped = ceiling.MaxOutputBytes, append(clamped, "max_output_bytes")
	}
	return l, clamped
}

// leastCores is the smallest share of a core that the kernel enforces: 1 ms in 100 ms.
const leastCores = 0.01

// Check fails with [CodeInvalidArgument] if a field is negative, NaN or infinite, or if MaxCPUCores is
// below 0.01, the smallest share that a kernel enforces. A field of 0 is valid: it means the default.
func (l Limits) Check() error {
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"max_ram_mb", float64(l.MaxRAMMB)},
		{"max_cpu_cores", l.MaxCPUCores},
		{"timeout_seconds", l.TimeoutSeconds},
		{"max_processes", float64(l.MaxProcesses)},
		{"max_output_bytes", float64(l.MaxOutputBytes)},
	} {
		if math.IsNaN(f.v) || math.IsInf(f.v, 0) || f.v < 0 {
			return Errorf(CodeInvalidArgument, "%s is %v; it has to be above 0", f.name, f.v)
		}
	}
	if l.MaxCPUCores > 0 && l.MaxCPUCores < leastCores {
		return Errorf(CodeInvalidArgument, "max_cpu_cores is %v; it has to be at least %v", l.MaxCPUCores, leastCores)
	}
	return nil
}

// LimitsChange changes the stored limits of a namespace.
type LimitsChange struct {
	Limits Limits `json:"limits,omitzero"`  // a field of 0 is not changed
	Reset  bool   `json:"reset,omitempty"`  // remove all stored limits except those in Limits; the configured ones apply again
	Strict bool   `json:"strict,omitempty"` // a limit above its ceiling is refused with limit_exceeds_cap, not clamped
}

// LimitsChanged has the default limits of a namespace before and after a change, none above
// its ceiling. Existing sessions keep their limits.
type LimitsChanged struct {
	Previous Limits   `json:"previous"`
	Current  Limits   `json:"current"`
	Clamped  []string `json:"clamped"` // requested limits that are above their ceilings
}

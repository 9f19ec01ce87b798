package server_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestSetResourceLimits(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	got := p.good("set_resource_limits", map[string]any{"max_ram_mb": 256, "max_cpu_cores": 0.5, "max_processes": 99999})
	want := map[string]any{
		"previous": map[string]any{"max_ram_mb": 512.0, "max_cpu_cores": 1.0, "timeout_seconds": 60.0, "max_processes": 10.0, "max_output_bytes": 1e6},
		"current":  map[string]any{"max_ram_mb": 256.0, "max_cpu_cores": 0.5, "timeout_seconds": 60.0, "max_processes": 1024.0, "max_output_bytes": 1e6},
		"clamped":  []any{"max_processes"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	asked := sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 256, MaxCPUCores: 0.5, MaxProcesses: 99999}}
	if d := cmp.Diff(asked, f.changes[0]); d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
	p.good("set_resource_limits", nil)
	if d := cmp.Diff(sandboxmcp.LimitsChange{}, f.changes[1]); d != "" {
		t.Errorf("a look (-want +got):\n%s", d)
	}
}

// What is no limit is refused, and changes nothing.
func TestSetResourceLimitsRefuses(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	for _, name := range []string{"max_ram_mb", "max_cpu_cores", "timeout_seconds", "max_processes", "max_output_bytes"} {
		for _, bad := range []any{0, -1, -0.5, nil, "256", "many", true, []int{1}, map[string]any{}} {
			p.fails("invalid_argument", "set_resource_limits", map[string]any{name: bad})
		}
		if name != "max_cpu_cores" {
			p.fails("invalid_argument", "set_resource_limits", map[string]any{name: 1.5})
			p.fails("invalid_argument", "set_resource_limits", map[string]any{name: math.MaxFloat64})
		}
	}
	p.fails("invalid_argument", "set_resource_limits", map[string]any{"reset": true})
	p.fails("access_denied", "set_resource_limits", map[string]any{"max_ram_mb": 1, "namespace": "another"})
	if len(f.changes) > 0 {
		t.Errorf("got changes %+v, want none", f.changes)
	}
}

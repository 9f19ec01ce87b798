package limits_test

import (
	"slices"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
)

func TestRulesClampToCeilingsAndToTheMachinesTasks(t *testing.T) {
	u := limits.Rules{
		Defaults:  sandboxmcp.Limits{MaxRAMMB: 100, TimeoutSeconds: 5, MaxProcesses: 4},
		Ceilings:  sandboxmcp.Limits{MaxRAMMB: 200, MaxCPUCores: 2, TimeoutSeconds: 60, MaxProcesses: 100, MaxOutputBytes: 1 << 20},
		MostTasks: 10 * sandboxmcp.TasksPerProcess,
	}
	for what, c := range map[string]struct {
		asked   sandboxmcp.Limits
		strict  bool
		ram     int
		most    int
		clamped []string
		code    sandboxmcp.Code
	}{
		"nothing":                   {ram: 100, most: 4},
		"below":                     {asked: sandboxmcp.Limits{MaxRAMMB: 150}, ram: 150, most: 4},
		"above":                     {asked: sandboxmcp.Limits{MaxRAMMB: 300}, ram: 200, most: 4, clamped: []string{"max_ram_mb"}},
		"above, strict":             {asked: sandboxmcp.Limits{MaxRAMMB: 300}, strict: true, code: sandboxmcp.CodeLimitExceedsCap},
		"more tasks than there are": {asked: sandboxmcp.Limits{MaxProcesses: 50}, strict: true, ram: 100, most: 10, clamped: []string{"max_processes"}},
	} {
		got, clamped, err := u.Apply(c.asked, u.InForce(sandboxmcp.Limits{}), c.strict)
		if code := sandboxmcp.CodeOf(err); code != c.code {
			t.Errorf("%s: got %v, want the code %q", what, err, c.code)
		} else if err == nil && (got.MaxRAMMB != c.ram || got.MaxProcesses != c.most || !slices.Equal(clamped, c.clamped)) {
			t.Errorf("%s: got %+v with %q clamped, want %d MB, %d processes and %q", what, got, clamped, c.ram, c.most, c.clamped)
		}
	}
	if got := u.InForce(sandboxmcp.Limits{MaxRAMMB: 900}); got.MaxRAMMB != 200 || got.TimeoutSeconds != 5 {
		t.Errorf("got %+v in force, want what is kept clamped, and the default timeout", got)
	}
}

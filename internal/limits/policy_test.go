package limits_test

import (
	"context"
	"slices"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

func TestWhichLimitsHold(t *testing.T) {
	table, s := open(t, store.Config{Dir: t.TempDir()})
	log, err := audit.Open(context.WithoutCancel(t.Context()), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close(context.WithoutCancel(t.Context())) })
	p := limits.NewPolicy(table, log, limits.Rules{
		Defaults: sandboxmcp.Limits{MaxRAMMB: 100, MaxCPUCores: 1, TimeoutSeconds: 10, MaxProcesses: 10, MaxOutputBytes: 1000},
		Ceilings: sandboxmcp.Limits{MaxRAMMB: 400, MaxCPUCores: 4, TimeoutSeconds: 40, MaxProcesses: 40, MaxOutputBytes: 4000}, MostTasks: 20 * sandboxmcp.TasksPerProcess,
	})
	if _, err := p.Change(t.Context(), sandboxmcp.Caller{Namespace: "kept"}, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 50}}); err != nil {
		t.Fatal(err)
	}
	session := &sandboxmcp.Limits{MaxRAMMB: 70, MaxProcesses: 5}
	for name, c := range map[string]struct {
		ns        sandboxmcp.Namespace
		ask       limits.Ask
		ram, proc int
		clamped   []string
		code      sandboxmcp.Code
	}{
		"Settings":      {ns: "other", ram: 100, proc: 10},
		"Namespace":     {ns: "kept", ram: 50, proc: 10},
		"Request":       {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxRAMMB: 200}}, ram: 200, proc: 10},
		"Modest":        {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxRAMMB: 200}, Modest: true}, ram: 50, proc: 10},
		"Session":       {ns: "kept", ask: limits.Ask{Session: session}, ram: 70, proc: 5},
		"Ceiling":       {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxRAMMB: 500}}, ram: 400, proc: 10, clamped: []string{"max_ram_mb"}},
		"Strict":        {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxRAMMB: 500}, Strict: true}, code: sandboxmcp.CodeLimitExceedsCap},
		"Shared":        {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxProcesses: 30}, Strict: true}, ram: 50, proc: 20, clamped: []string{"max_processes"}},
		"SharedHigher":  {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxProcesses: 50}}, ram: 50, proc: 20, clamped: []string{"max_processes"}},
		"Backend":       {ns: "other", ask: limits.Ask{Most: sandboxmcp.Limits{MaxRAMMB: 90}}, ram: 90, proc: 10},
		"BackendAsked":  {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxRAMMB: 200}, Most: sandboxmcp.Limits{MaxRAMMB: 90}}, ram: 90, proc: 10, clamped: []string{"max_ram_mb"}},
		"BackendStrict": {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxRAMMB: 200}, Strict: true, Most: sandboxmcp.Limits{MaxRAMMB: 90}}, code: sandboxmcp.CodeLimitExceedsCap},
		"BackendHigher": {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxRAMMB: 500}, Most: sandboxmcp.Limits{MaxRAMMB: 900}}, ram: 400, proc: 10, clamped: []string{"max_ram_mb"}},
		"Wrong":         {ns: "kept", ask: limits.Ask{Limits: sandboxmcp.Limits{MaxRAMMB: -1}}, code: sandboxmcp.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			got, clamped, err := p.Of(t.Context(), c.ns, c.ask)
			if c.code != "" {
				if sandboxmcp.CodeOf(err) != c.code {
					t.Errorf("got %v, want %s", err, c.code)
				}
				return
			}
			if err != nil || got.MaxRAMMB != c.ram || got.MaxProcesses != c.proc || !slices.Equal(clamped, c.clamped) {
				t.Errorf("got %+v, %v, %v; want %d MiB, %d processes, %v", got, clamped, err, c.ram, c.proc, c.clamped)
			}
		})
	}
}

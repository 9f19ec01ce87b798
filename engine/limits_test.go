package engine_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

func setLimits(t *testing.T, e *engine.Engine, c sandboxmcp.LimitsChange, who ...sandboxmcp.Caller) sandboxmcp.LimitsChanged {
	t.Helper()
	done, err := e.SetLimits(t.Context(), callerOf(who), c)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// spec is what the fake's last sandbox was asked to hold.
func (f *fake) spec() backend.Spec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.specs[len(f.specs)-1]
}

// memoryOf runs something and returns the MiB that its sandbox had.
func memoryOf(t *testing.T, e *engine.Engine, f *fake, r sandboxmcp.Request, who ...sandboxmcp.Caller) int {
	t.Helper()
	execute(t, e, r, who...)
	return int(f.spec().MemoryBytes >> 20)
}

// TestKeptLimits: limits of the request win over those stored for the namespace, and these win
// over the configured ones. None exceeds its ceiling.
func TestKeptLimits(t *testing.T) {
	t.Parallel()
	f := &fake{}
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, f, at(dir), func(c *engine.Config) { c.Limits.MaxRAMMB = 300 })
	if got := memoryOf(t, e, f, shell("x")); got != 300 {
		t.Errorf("configured: got %d", got)
	}
	done := setLimits(t, e, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 100, TimeoutSeconds: 99999}}, sandboxmcp.Caller{Actor: "mcp"})
	want := sandboxmcp.DefaultLimits()
	want.MaxRAMMB = 300
	if done.Previous != want {
		t.Errorf("previous: got %+v", done.Previous)
	}
	want.MaxRAMMB, want.TimeoutSeconds = 100, 3600
	if done.Current != want || !cmp.Equal(done.Clamped, []string{"timeout_seconds"}) {
		t.Errorf("current: got %+v, clamped %v", done.Current, done.Clamped)
	}
	if got := memoryOf(t, e, f, shell("x")); got != 100 {
		t.Errorf("kept: got %d", got)
	}
	own := shell("x")
	own.Limits.MaxRAMMB = 200
	if got := memoryOf(t, e, f, own); got != 200 {
		t.Errorf("its own: got %d", got)
	}
	if got := memoryOf(t, e, f, shell("x"), of("other")); got != 300 {
		t.Errorf("another namespace: got %d", got)
	}
	if st, err := e.Inspect(t.Context(), sandboxmcp.Caller{}, ""); err != nil || st.Limits != want {
		t.Errorf("inspect: got %+v, %v", st.Limits, err)
	}
	// Another engine on the directory, with a lower ceiling.
	g := &fake{}
	lower := open(t, g, at(dir), func(c *engine.Config) { c.Ceilings.MaxRAMMB = 64 })
	if got := memoryOf(t, lower, g, shell("x")); got != 64 {
		t.Errorf("under a lower ceiling: got %d", got)
	}
	strict := shell("x")
	strict.Strict = true
	if got := memoryOf(t, lower, g, strict); got != 64 {
		t.Errorf("what nobody asked for is refused: got %d", got)
	}
	if now := setLimits(t, lower, sandboxmcp.LimitsChange{}); now.Current.MaxRAMMB != 64 || now.Previous != now.Current || now.Clamped == nil {
		t.Errorf("a change of nothing: got %+v, want what is in force", now)
	}
	setLimits(t, lower, sandboxmcp.LimitsChange{Reset: true})
	if got := memoryOf(t, e, f, shell("x")); got != 300 {
		t.Errorf("after the other's reset: got %d", got)
	}
}

// TestLimitsAreRecorded: each change is on record with the old and the new value. A call that
// changes nothing is not recorded, and a refused one changes nothing.
func TestLimitsAreRecorded(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, &fake{}, at(dir))
	setLimits(t, e, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 100}}, sandboxmcp.Caller{Actor: "mcp"})
	setLimits(t, e, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 100}})
	setLimits(t, e, sandboxmcp.LimitsChange{})
	for name, c := range map[string]sandboxmcp.LimitsChange{
		"negative": {Limits: sandboxmcp.Limits{MaxCPUCores: -1}},
	} {
		if _, err := e.SetLimits(t.Context(), sandboxmcp.Caller{}, c); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := e.SetLimits(t.Context(), of("a b"), sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 1}})
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
	_, err = e.SetLimits(t.Context(), sandboxmcp.Caller{}, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 99999, MaxProcesses: 3}, Strict: true})
	wantCode(t, err, sandboxmcp.CodeLimitExceedsCap)
	setLimits(t, e, sandboxmcp.LimitsChange{Reset: true})
	var got []string
	for _, r := range rows(t, dir, "default") {
		got = append(got, r.Action+" "+r.Phase+" "+r.Actor+": "+r.Detail)
	}
	want := []string{"limits_changed outcome mcp: max_ram_mb 512 → 100", "limits_changed outcome tester: reset: max_ram_mb 100 → 512"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestNoRecordNoChange: if a change cannot be recorded, the limits stay as they were.
func TestNoRecordNoChange(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, &fake{}, at(dir))
	do(t, database(t, dir), `CREATE TRIGGER no_audit BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END`)
	if _, err := e.SetLimits(t.Context(), sandboxmcp.Caller{}, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 100}}); err == nil {
		t.Error("SetLimits: got no error, want a refusal")
	}
	if now := setLimits(t, e, sandboxmcp.LimitsChange{}); now.Current.MaxRAMMB != 512 {
		t.Errorf("got %+v", now.Current)
	}
}

// TestSessionsKeepTheirLimits: a session has the limits of when it was made.
// Settings that stand in for a caller's wish hold no more than what is kept.
func TestSessionsKeepTheirLimits(t *testing.T) {
	t.Parallel()
	f := &fake{}
	e := open(t, f)
	spec := sandboxmcp.SessionSpec{Language: sandboxmcp.Shell, Fresh: true}
	setLimits(t, e, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 100, MaxOutputBytes: 50}})
	old, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, spec)
	if err != nil || old.Limits.MaxRAMMB != 100 {
		t.Fatalf("got %+v, %v", old.Limits, err)
	}
	setLimits(t, e, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 200}})
	all, err := e.Sessions(t.Context(), everyone())
	if err != nil || len(all) != 1 || all[0].Limits.MaxRAMMB != 100 {
		t.Errorf("the old one: got %+v, %v", all, err)
	}
	spec.Limits = sandboxmcp.Limits{MaxRAMMB: 300, MaxOutputBytes: 40}
	spec.Modest = true
	made, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, spec)
	if err != nil || made.Limits.MaxRAMMB != 200 || made.Limits.MaxOutputBytes != 40 {
		t.Errorf("of settings: got %+v, %v", made.Limits, err)
	}
	run := sandboxmcp.Request{SessionID: old.ID, Code: "x", Modest: true, Limits: sandboxmcp.Limits{MaxOutputBytes: 1000}}
	f.program = func(r *fakeRun) backend.Exit {
		for range 60 {
			_, _ = r.Stdout.Write([]byte("x"))
		}
		return backend.Exit{}
	}
	if res := execute(t, e, run); len(res.Stdout) != 50 || !res.StdoutTruncated {
		t.Errorf("a run's output: got %d bytes, want 50 and truncated", len(res.Stdout))
	}
	run.Modest = false
	if res := execute(t, e, run); len(res.Stdout) != 60 {
		t.Errorf("a run with a limit of its own: got %d bytes, want 60", len(res.Stdout))
	}
}

package engine

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
)

// TestALateConnectionGivesNoGrantToTheNextRun: a grant for one run that was taken for a run after that had ended, such as by its last
// connection, is not that of a later run with the same id.
func TestALateConnectionGivesNoGrantToTheNextRun(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), Packages: "ask"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	allowed := func() bool {
		_, ok, err := e.asks.Allows(t.Context(), gate.Who{Namespace: "default", RequestID: "mine"}, func(gate.Package) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if _, err := e.DecidePackage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Package: "python:idna"}, Scope: sandboxmcp.GrantOnce}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !allowed() {
			t.Fatal("late: got it closed, want it open")
		}
	}
	x, err := e.begin(t.Context(), order{req: sandboxmcp.Request{ID: "mine", Language: sandboxmcp.Shell, Code: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.finish(x)
	if allowed() {
		t.Error("the next run: got it open, want it closed")
	}
}

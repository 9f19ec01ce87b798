package process_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// TestJailsAreBounded: of trees that are part of a jail, many different lists leave no
// more than a few jails, and none is closed in which a sandbox lives.
func TestJailsAreBounded(t *testing.T) {
	before := backendtest.Count(t)
	b := newBackend()(t)
	open := func(tree string) backend.Sandbox {
		sp := spec("jails")
		sp.Trees = backend.Trees(tree)
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	stays := open(t.TempDir())
	for range 12 {
		if err := open(t.TempDir()).Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := b.(*process.Backend).Jails(); got > 8 {
		t.Errorf("got %d jails, want at most 8", got)
	}
	r, err := stays.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "exit 7"}})
	if err != nil {
		t.Fatalf("the sandbox that stays has ended: %v", err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e.Code != 7 {
		t.Errorf("got %+v, %v, want code 7", e, err)
	}
	if err := stays.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	before.Same(t)
}

package engine

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestSecretsThatCameWhileAHostVerbWaited: the answer of a verb that waited for its turn is masked with the secrets of
// its turn.
func TestSecretsThatCameWhileAHostVerbWaited(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), HostAccess: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	q := e.commands
	others := make([]func(), q.Stats().MaxConcurrent)
	for i := range others {
		if others[i], err = inTurn(t.Context(), q, sandboxmcp.Caller{Namespace: "other"}); err != nil {
			t.Fatal(err)
		}
		defer others[i]()
	}
	masked := make(chan string, 1)
	go func() {
		_, masks, done, err := e.hostTurn(t.Context(), sandboxmcp.Caller{}, q)
		if err != nil {
			masked <- err.Error()
			return
		}
		defer done()
		masked <- masks.Text("a late-secret-value")
	}()
	testkit.UntilEqual(t, "verbs that wait", 1, func() int { return q.Stats().Queued })
	if err := e.VaultAdd(t.Context(), "", "TOKEN", sandboxmcp.NewSecret("late-secret-value"), 0); err != nil {
		t.Fatal(err)
	}
	others[0]()
	if got, want := <-masked, "a ***REDACTED***"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

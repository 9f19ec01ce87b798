package gate_test

import (
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
)

// TestFloodWritesNothing: a question that is repeated, or exceeds the bound, is answered
// without a write to the database, and wakes no waiter.
func TestFloodWritesNothing(t *testing.T) {
	b := open(t)
	for i := range 30 {
		b.ask(fmt.Sprintf("a%d.example.com", i))
	}
	version := func() int64 {
		t.Helper()
		v, err := b.store.Watch("gate").Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := version()
	for i := range 500 {
		b.ask("a1.example.com")
		_, fresh, err := b.Request(t.Context(), sandboxmcp.Caller{Namespace: "default"}, site(t, fmt.Sprintf("b%d.example.com", i)), gate.Ask{})
		if fresh {
			t.Fatal("got a new question, want the one that waits")
		}
		wantCode(t, err, sandboxmcp.CodeQueueFull)
	}
	if after := version(); after != before {
		t.Errorf("got %d changes announced, want none", after-before)
	}
}

// TestNamespacesDoNotTakeEachOthersQuestions: callers with many namespaces can have as many questions
// pending as there are for all, and another namespace can still ask.
func TestNamespacesDoNotTakeEachOthersQuestions(t *testing.T) {
	b := open(t)
	ask := func(ns sandboxmcp.Namespace, i int) error {
		_, _, err := b.Request(t.Context(), sandboxmcp.Caller{Namespace: ns}, site(t, fmt.Sprintf("a%d.example.com", i)), gate.Ask{})
		return err
	}
	asked := 0
	for i := range 30 {
		for ns := range 10 {
			if ask(sandboxmcp.Namespace(fmt.Sprintf("many%d", ns)), i) == nil {
				asked++
			}
		}
	}
	if asked != 256 {
		t.Errorf("got %d questions of ten namespaces, want 256", asked)
	}
	if err := ask("other", 0); err != nil {
		t.Errorf("the first question of another namespace: got %v, want no error", err)
	}
	wantCode(t, ask("other", 1), sandboxmcp.CodeQueueFull)
}

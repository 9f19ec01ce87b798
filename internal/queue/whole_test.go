package queue_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
)

// TestASessionThatIsMadeCountsOnce: its tasks are reserved before its first request asks for them. A namespace that is
// alone has all tasks, for runs and sessions together.
func TestASessionThatIsMadeCountsOnce(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 1000})
	mustFit(t, enter(t, q, "a"), 500)
	for range 5 {
		s, err := q.Reserve(of("a"), 100)
		if err != nil {
			t.Fatal(err)
		}
		tk := q.EnterBeside(of("a"))
		result := waits(t, q, tk, 100)
		if q.Stats().Queued > 0 {
			t.Fatal("a session beside the runs: got it waiting, want it made")
		}
		if err = <-result; err != nil {
			t.Fatal(err)
		}
		s.Take(tk)
		tk.Release()
		defer s.Release()
	}
}

// TestAFullCallerKeepsNobodyOfASharedNamespace: a request of a caller who has its share in another namespace waits for
// that caller's own runs. Those of others in the namespace do not wait for them.
func TestAFullCallerKeepsNobodyOfASharedNamespace(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 8000, Known: []sandboxmcp.Namespace{"a", "shared", "b"}})
	first := enterAs(t, q, "a", "key 1")
	mustFit(t, first, 4000)
	second := waits(t, q, enterAs(t, q, "shared", "key 1"), 4000)
	other := enterAs(t, q, "shared", "key 2")
	behind := waits(t, q, other, 1000)
	if got := q.Stats().Queued; got != 1 {
		t.Fatalf("got %d requests that wait for tasks, want only that of the full caller", got)
	}
	if err := <-behind; err != nil {
		t.Error(err)
	}
	other.Release()
	first.Release()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

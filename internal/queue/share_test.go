package queue_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
)

func enterAs(t *testing.T, q *queue.Queue, ns sandboxmcp.Namespace, caller string) *queue.Ticket {
	t.Helper()
	tk, err := q.Enter(sandboxmcp.Caller{Namespace: ns, Holder: caller}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

// TestACallerWithSeveralNamespacesLeavesAPlace: its namespaces count as one, and so no other waits for the end of what
// it runs.
func TestACallerWithSeveralNamespacesLeavesAPlace(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 4, MaxWaiting: 8, Known: []sandboxmcp.Namespace{"a", "a2", "b"}})
	for range 3 {
		if !isAdmitted(enterAs(t, q, "a", "key 1")) {
			t.Fatal("one of three: got it waiting, want it admitted")
		}
	}
	last := enterAs(t, q, "a2", "key 1")
	if last.Place() != 1 {
		t.Error("the fourth in another namespace of the caller: got it admitted, want it to wait for b")
	}
	b := enterAs(t, q, "b", "key 2")
	if !isAdmitted(b) {
		t.Fatal("the first of another caller: got it waiting, want it admitted")
	}
	b.Release()
	if last.Place() != 1 {
		t.Error("after the other has ended: got the fourth admitted, want it to wait")
	}
	last.Leave()
	other := enterAs(t, q, "a2", "key 3")
	if !isAdmitted(other) {
		t.Error("of another caller with that namespace: got it waiting, want it admitted")
	}
}

// TestCallersOfOneNamespaceHaveTheirOwnLines: a request of a caller that has places does not delay a request of another
// caller in the same namespace that has none.
func TestCallersOfOneNamespaceHaveTheirOwnLines(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 2, MaxWaiting: 8, Known: []sandboxmcp.Namespace{"a", "shared", "b"}})
	if !isAdmitted(enterAs(t, q, "a", "key 1")) {
		t.Fatal("the first: got it waiting, want it admitted")
	}
	if waits := enterAs(t, q, "shared", "key 1"); waits.Place() != 1 {
		t.Fatalf("the second of the caller: got place %d, want 1", waits.Place())
	}
	if !isAdmitted(enterAs(t, q, "shared", "key 2")) {
		t.Error("the first of another caller: got it waiting, want it admitted")
	}
}

// TestACallerLeavesTasks: one whose runs have their share waits for their end, and keeps nobody from what is left.
func TestACallerLeavesTasks(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 8000, Known: []sandboxmcp.Namespace{"a", "a2", "b"}})
	first := enterAs(t, q, "a", "key 1")
	mustFit(t, first, 4000)
	second := waits(t, q, enterAs(t, q, "a2", "key 1"), 4000)
	third := waits(t, q, enterAs(t, q, "a", "key 1"), 100) // it would fit, and does not overtake
	b := enterAs(t, q, "b", "key 2")
	mustFit(t, b, 4000)
	b.Release()
	if got := q.Stats().Queued; got != 2 {
		t.Errorf("got %d requests of the caller that wait for the first, want 2", got)
	}
	first.Release()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if err := <-third; err != nil {
		t.Error(err)
	}
}

// TestACallerLeavesTasksToSessions: sessions of one caller take three quarters of what sessions may have, and each caller
// has room for a run.
func TestACallerLeavesTasksToSessions(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 8000, Known: []sandboxmcp.Namespace{"a", "a2", "b"}})
	greedy := sandboxmcp.Caller{Namespace: "a", Holder: "key 1"}
	if _, err := q.Reserve(greedy, 4000); sandboxmcp.CodeOf(err) != sandboxmcp.CodeMaxSessions {
		t.Errorf("a session with all tasks of sessions: got %v, want max_sessions", err)
	}
	var shares []*queue.Share
	for _, ns := range []sandboxmcp.Namespace{"a", "a2"} {
		greedy.Namespace = ns
		s, err := q.Reserve(greedy, 1500)
		if err != nil {
			t.Fatal(err)
		}
		tk := q.EnterBeside(greedy)
		mustFit(t, tk, 1500)
		s.Take(tk)
		tk.Release()
		shares = append(shares, s)
	}
	if _, err := q.Reserve(greedy, 100); sandboxmcp.CodeOf(err) != sandboxmcp.CodeMaxSessions {
		t.Errorf("one more than the share: got %v, want max_sessions", err)
	}
	other := sandboxmcp.Caller{Namespace: "b", Holder: "key 2"}
	s, err := q.Reserve(other, 1000)
	if err != nil {
		t.Fatalf("a session of another caller: got %v, want it", err)
	}
	mustFit(t, enterAs(t, q, "a", "key 1"), 4000) // the largest run fits beside its own sessions
	tk := q.EnterBeside(other)
	mustFit(t, tk, 1000)
	s.Take(tk)
	for _, s := range append(shares, s) {
		s.Release()
	}
	if s, err = q.Reserve(greedy, 3000); err != nil {
		t.Errorf("after the end of all: got %v, want the session", err)
	}
	s.Release()
}

// TestOneSessionFitsWhereTasksAreFew: with the default limits, whatever is left for others.
func TestOneSessionFitsWhereTasksAreFew(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 4, MaxWaiting: 8, MaxTasks: 512, Known: []sandboxmcp.Namespace{"a", "b"}})
	if _, err := q.Reserve(of("a"), 160); err != nil {
		t.Error(err)
	}
	if _, err := q.Reserve(of("b"), 160); sandboxmcp.CodeOf(err) != sandboxmcp.CodeMaxSessions {
		t.Errorf("a second one: got %v, want max_sessions", err)
	}
}

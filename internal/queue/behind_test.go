package queue_test

import (
	"context"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
)

// fitAtOnce fails the test if a ticket has to wait.
func fitAtOnce(t *testing.T, tk *queue.Ticket, tasks int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tk.Wait(ctx, tasks); err != nil {
		t.Fatalf("Wait for %d tasks: got it waiting, want it admitted", tasks)
	}
}

// TestARequestThatWaitsForItsOwnRunsDelaysNoOthers: a large request that would fit if another run of its caller had ended
// does not delay requests of other callers.
func TestARequestThatWaitsForItsOwnRunsDelaysNoOthers(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 8000, Known: []sandboxmcp.Namespace{"a", "b", "c"}})
	first, b := enter(t, q, "a"), enter(t, q, "b")
	mustFit(t, first, 4000)
	mustFit(t, b, 2500)
	second := waits(t, q, enter(t, q, "a"), 2000)
	behind := waits(t, q, enter(t, q, "a"), 100) // it would fit, but must not overtake the second of its caller
	fitAtOnce(t, enter(t, q, "b"), 200)
	fitAtOnce(t, enter(t, q, "c"), 1000)
	first.Release()
	for _, result := range []chan error{second, behind} {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

// TestRunsWithDefaultLimitsPassALargeRequest: while a large request waits for tasks of other callers, a caller without a
// run gets one with the default limits. Other requests wait behind the large one.
func TestRunsWithDefaultLimitsPassALargeRequest(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 8000, Known: []sandboxmcp.Namespace{"a", "b", "c"}})
	b := enter(t, q, "b")
	mustFit(t, b, 4000)
	mustFit(t, enter(t, q, "d"), 1000)
	large := waits(t, q, enter(t, q, "a"), 4000)
	fitAtOnce(t, enter(t, q, "c"), 160)
	second, more := waits(t, q, enter(t, q, "c"), 160), waits(t, q, enter(t, q, "e"), 161)
	if got := q.Stats().Queued; got != 3 {
		t.Errorf("got %d requests that wait, want the large one, the second of c and the one above the default limits", got)
	}
	b.Release()
	for _, result := range []chan error{large, second, more} {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

// TestPassingRunsDoNotDelayALargeRequestForever: while a large request waits for an earlier run, two callers with one short
// run after another may pass it. When that run ends, no further run may pass, and the large request is admitted once
// the runs that have passed it end. The tasks of two sessions are in use all the time.
func TestPassingRunsDoNotDelayALargeRequestForever(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 8000, Known: []sandboxmcp.Namespace{"a", "b", "c", "d"}})
	for _, s := range []struct {
		ns    sandboxmcp.Namespace
		tasks int
	}{{"b", 3000}, {"c", 900}} {
		share, err := q.Reserve(of(s.ns), s.tasks)
		if err != nil {
			t.Fatal(err)
		}
		tk := q.EnterBeside(of(s.ns))
		mustFit(t, tk, s.tasks)
		share.Take(tk)
	}
	first := enter(t, q, "d")
	mustFit(t, first, 2000)
	large := waits(t, q, enter(t, q, "a"), 4000)
	var runs []*queue.Ticket
	for range 3 {
		for _, ns := range []sandboxmcp.Namespace{"b", "c"} {
			runs = append(runs, enter(t, q, ns))
			fitAtOnce(t, runs[len(runs)-1], 160)
			if len(runs) > 1 {
				runs[len(runs)-2].Release()
			}
		}
	}
	first.Release() // now the large request waits only for the last run of c, which has passed it
	last := waits(t, q, enter(t, q, "b"), 160)
	runs[len(runs)-1].Release()
	if err := <-large; err != nil {
		t.Error(err)
	}
	fitAtOnce(t, enter(t, q, "e"), 10)
	if got := q.Stats().Queued; got != 1 {
		t.Errorf("got %d requests that wait, want that of b", got)
	}
	_ = last
}

// TestNamespacesOfOneCallerTakeOneTurn: a caller with several namespaces gets no more turns than one with a single
// namespace, and no more of its requests may wait.
func TestNamespacesOfOneCallerTakeOneTurn(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 1, MaxWaiting: 3})
	running := enterAs(t, q, "a1", "key 1")
	first, second, third := enterAs(t, q, "a1", "key 1"), enterAs(t, q, "a2", "key 1"), enterAs(t, q, "a3", "key 1")
	if _, err := q.Enter(sandboxmcp.Caller{Namespace: "a4", Holder: "key 1"}, 0); sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
		t.Errorf("a fourth that waits: got %v, want queue_full", err)
	}
	b := enter(t, q, "b")
	if second.Place() != 2 || third.Place() != 3 || b.Place() != 1 {
		t.Errorf("got places %d, %d and %d, want 2, 3 and 1", second.Place(), third.Place(), b.Place())
	}
	running.Release()
	first.Release()
	if !isAdmitted(b) {
		t.Error("the other caller after one request of the first: got it waiting, want it admitted")
	}
}

// TestAPlaceThatIsKeptForANamespaceIsGivenToIt: this also holds if a request of the same caller in another namespace waits
// before it.
func TestAPlaceThatIsKeptForANamespaceIsGivenToIt(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 3, MaxWaiting: 8, Known: []sandboxmcp.Namespace{"a", "b"}})
	first, second := enterAs(t, q, "a", "key 1"), enterAs(t, q, "a", "key 1")
	third, fourth := enterAs(t, q, "a", "key 1"), enterAs(t, q, "a", "key 1")
	if !isAdmitted(first) || !isAdmitted(second) || third.Place() != 1 {
		t.Fatal("three of a: want two admitted and a place kept for b")
	}
	b, next := enterAs(t, q, "b", "key 1"), enterAs(t, q, "b", "key 1")
	if !isAdmitted(b) {
		t.Fatal("the first of b: got it waiting behind those of a, want it admitted")
	}
	if third.Place() != 1 || fourth.Place() != 2 || next.Place() != 3 {
		t.Errorf("got places %d, %d and %d, want 1, 2 and 3", third.Place(), fourth.Place(), next.Place())
	}
	b.Release() // now the place is kept for b again
	if !isAdmitted(next) || third.Place() != 1 {
		t.Error("the second of b: got it waiting, want it admitted before those of a")
	}
	first.Release()
	if !isAdmitted(third) || fourth.Place() != 1 {
		t.Error("after the end of one of a: got the next of a waiting, want it admitted")
	}
}

// TestNothingIsKeptFromACallerForItself: no place and no tasks are kept from a caller for namespaces that only this caller
// may use.
func TestNothingIsKeptFromACallerForItself(t *testing.T) {
	known := []sandboxmcp.Namespace{"a", "b", "c"}
	for holders, free := range map[string]bool{"key 1": true, "key 2": false} {
		q := queue.New(queue.Config{MaxConcurrent: 2, MaxWaiting: 8, MaxTasks: 1000, Known: known, Holders: map[sandboxmcp.Namespace]string{"a": holders, "b": holders, "c": holders}})
		first, second := enterAs(t, q, "a", "key 1"), enterAs(t, q, "b", "key 1")
		mustFit(t, first, 500)
		if isAdmitted(second) != free {
			t.Errorf("held by %s: got the second admitted %v, want %v", holders, !free, free)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.EnterBeside(sandboxmcp.Caller{Namespace: "b", Holder: "key 1"}).Wait(ctx, 500); (err == nil) != free {
			t.Errorf("held by %s: got %v for all tasks, want that they fit: %v", holders, err, free)
		}
	}
}

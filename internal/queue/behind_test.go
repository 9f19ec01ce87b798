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

// TestWhoWaitsForItsOwnRunsKeepsNobodyOut: a large request of a caller that would fit if the caller's other run had
// ended does not keep what is free from others.
func TestWhoWaitsForItsOwnRunsKeepsNobodyOut(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 8000, Known: []sandboxmcp.Namespace{"a", "b", "c"}})
	first, b := enter(t, q, "a"), enter(t, q, "b")
	mustFit(t, first, 4000)
	mustFit(t, b, 2500)
	second := waits(t, q, enter(t, q, "a"), 2000)
	behind := waits(t, q, enter(t, q, "a"), 100) // it would fit, and does not overtake
	fitAtOnce(t, enter(t, q, "b"), 200)
	fitAtOnce(t, enter(t, q, "c"), 1000)
	first.Release()
	for _, result := range []chan error{second, behind} {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

// TestALargeRequestLetsTheUsualPass: while it waits for what others have, whoever has no run may have one with the
// default limits. Further ones wait, so that the large one comes in once others have ended.
func TestALargeRequestLetsTheUsualPass(t *testing.T) {
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

// TestNamespacesOfOneCallerTakeOneTurn: a caller does not get more turns by naming several of its namespaces, nor more
// room to wait.
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

// TestALargeRequestIsNotPassedForever: of others with the default limits, of whom one always runs, it lets only so many
// pass as there is room for beside it and the sessions.
func TestALargeRequestIsNotPassedForever(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: 8, MaxTasks: 1000, Known: []sandboxmcp.Namespace{"a", "b", "c"}})
	makes := enter(t, q, "s")
	mustFit(t, makes, 320)
	session, err := q.Reserve(of("s"), 320)
	if err != nil {
		t.Fatal(err)
	}
	session.Take(makes)
	makes.Release()
	b, c, a := enter(t, q, "b"), enter(t, q, "c"), enter(t, q, "a")
	mustFit(t, b, 160)
	mustFit(t, c, 160)
	large := waits(t, q, a, 500)
	d := enter(t, q, "d")
	fitAtOnce(t, d, 160)
	d.Release()
	again := enter(t, q, "d")
	fitAtOnce(t, again, 160)
	last := enter(t, q, "e")
	tooMany := waits(t, q, last, 160)
	for _, one := range []*queue.Ticket{b, c} {
		one.Release()
		waits(t, q, enter(t, q, "b"), 160)
	}
	if a.Place() != 0 {
		t.Fatal("the large request after the end of all runs before it: got it waiting, want it admitted")
	}
	if err := <-large; err != nil {
		t.Error(err)
	}
	a.Release()
	if err := <-tooMany; err != nil {
		t.Error(err)
	}
}

// TestAPlaceThatIsKeptForANamespaceIsGivenToIt, also if a request of another namespace of the same caller waits before it.
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

// TestNothingIsKeptFromACallerForItself: of its namespaces, those that nobody else holds keep no place and no tasks from it.
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

package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
)

func of(ns sandboxmcp.Namespace) sandboxmcp.Caller { return sandboxmcp.Caller{Namespace: ns} }

func enter(t *testing.T, q *queue.Queue, ns sandboxmcp.Namespace) *queue.Ticket {
	t.Helper()
	tk, err := q.Enter(of(ns), 0)
	if err != nil {
		t.Fatalf("enter %s: got %v, want a ticket", ns, err)
	}
	return tk
}

func isAdmitted(tk *queue.Ticket) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return tk.Place() == 0 && tk.Wait(ctx, 0) == nil
}

func TestAdmitsSoManyAtOnce(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 2, MaxWaiting: 8})
	a, b, c := enter(t, q, "x"), enter(t, q, "x"), enter(t, q, "x")
	if !isAdmitted(a) || !isAdmitted(b) || c.Place() != 1 {
		t.Fatalf("places %d %d %d, want 0 0 1", a.Place(), b.Place(), c.Place())
	}
	a.Release()
	a.Release() // the second does nothing
	if got := q.Stats(); got != (sandboxmcp.QueueStats{MaxConcurrent: 2, Active: 2, TotalProcessed: 1}) {
		t.Errorf("stats %+v", got)
	}
	if !isAdmitted(c) {
		t.Error("c after a release: got it waiting, want it admitted")
	}
}

func TestTakesTurnsBetweenNamespaces(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 1, MaxWaiting: 8})
	run := enter(t, q, "busy")
	b1, b2, b3 := enter(t, q, "busy"), enter(t, q, "busy"), enter(t, q, "busy")
	o := enter(t, q, "other")
	var order []*queue.Ticket
	for range 4 {
		run.Release()
		for _, tk := range []*queue.Ticket{b1, b2, b3, o} {
			if tk.Place() == 0 && !contains(order, tk) {
				order, run = append(order, tk), tk
				break
			}
		}
	}
	want := []*queue.Ticket{b1, o, b2, b3}
	for i := range want {
		if order[i] != want[i] {
			t.Fatalf("number %d to be admitted: got another ticket, want the one whose turn it is", i)
		}
	}
}

func contains(list []*queue.Ticket, tk *queue.Ticket) bool {
	return slices.Contains(list, tk)
}

func TestRefusesWhenFull(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 1, MaxWaiting: 2})
	for range 3 {
		enter(t, q, "x")
	}
	_, err := q.Enter(of("x"), 0)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
		t.Fatalf("err %v, want queue_full", err)
	}
	if b := sandboxmcp.AsError(err).Body(); b["place"] != 3 || b["retry_after_seconds"] == nil {
		t.Errorf("got body %v, want place 3 and retry_after_seconds", b)
	}
	enter(t, q, "y") // another namespace still has room
}

// TestRefusesTooManyWaitingBytes: requests that wait may hold so many bytes together. One may
// always wait, whatever its size, and those that run do not count.
func TestRefusesTooManyWaitingBytes(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 1, MaxWaiting: 10, MaxBytes: 100})
	into := func(ns sandboxmcp.Namespace, bytes int64) (*queue.Ticket, error) { return q.Enter(of(ns), bytes) }
	run, err := into("x", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = into("x", 90); err != nil {
		t.Fatal(err)
	}
	if _, err = into("x", 10); err != nil {
		t.Errorf("up to the bound: got %v, want it to wait", err)
	}
	if _, err = into("x", 1); sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
		t.Errorf("above the bound: got %v, want queue_full", err)
	}
	if _, err = into("y", 1000); err != nil {
		t.Errorf("first of another namespace: got %v, want it to wait", err)
	}
	run.Leave() // the one with 90 bytes runs
	if _, err = into("x", 90); err != nil {
		t.Errorf("after one was admitted: got %v, want it to wait", err)
	}
}

func TestGivingUpFreesThePlace(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 1, MaxWaiting: 2})
	run := enter(t, q, "x")
	w1, w2 := enter(t, q, "x"), enter(t, q, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w1.Wait(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("wait: %v, want canceled", err)
	}
	if w2.Place() != 1 {
		t.Errorf("place %d after the one before left, want 1", w2.Place())
	}
	run.Release()
	if !isAdmitted(w2) {
		t.Error("the next ticket: got it waiting, want it admitted")
	}
	w2.Release()
	if s := q.Stats(); s.Active != 0 || s.Queued != 0 || s.TotalProcessed != 2 {
		t.Errorf("stats %+v, want nothing left and 2 processed", s)
	}
}

func TestManyAtOnce(t *testing.T) {
	const limit, n = 3, 200
	q := queue.New(queue.Config{MaxConcurrent: limit, MaxWaiting: n})
	var mu sync.Mutex
	var wg sync.WaitGroup
	now, most := 0, 0
	for i := range n {
		wg.Go(func() {
			tk, err := q.Enter(of(sandboxmcp.Namespace([]string{"a", "b"}[i%2])), 0)
			if err != nil || tk.Wait(t.Context(), 0) != nil {
				t.Error("got a ticket that is not admitted, want it admitted")
				return
			}
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			mu.Lock()
			now--
			mu.Unlock()
			tk.Release()
		})
	}
	wg.Wait()
	if s := q.Stats(); most > limit || s.Active != 0 || s.TotalProcessed != n {
		t.Errorf("got at most %d at once, stats %+v; want the limit kept and all processed", most, s)
	}
}

// TestLeaveFreesNoPlaceOfAnother: a ticket that was never admitted takes nothing
// from those that are, and one that was is not counted as processed.
func TestLeaveFreesNoPlaceOfAnother(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 1, MaxWaiting: 8})
	first := enter(t, q, "a")
	for range 5 {
		enter(t, q, "a").Leave()
	}
	if s := q.Stats(); s.Active != 1 || s.Queued != 0 || s.TotalProcessed != 0 {
		t.Errorf("after 5 left: got %+v, want 1 active, 0 queued, 0 processed", s)
	}
	second := enter(t, q, "a")
	if second.Place() != 1 {
		t.Errorf("place of the next: got %d, want 1: the first holds the only admission", second.Place())
	}
	first.Leave()
	first.Leave()
	if err := second.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	second.Release()
	second.Leave()
	if s := q.Stats(); s.Active != 0 || s.TotalProcessed != 1 {
		t.Errorf("at the end: got %+v, want 0 active, 1 processed", s)
	}
	var none *queue.Ticket
	none.Leave()
}

// TestSetBounds: more requests are admitted at once when there is room for them, and fewer wait.
func TestSetBounds(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 1, MaxWaiting: 2})
	enter := func() *queue.Ticket {
		t.Helper()
		k, err := q.Enter(of("a"), 0)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first, second, third := enter(), enter(), enter()
	q.SetBounds(2, 1)
	for _, k := range []*queue.Ticket{first, second} {
		if err := k.Wait(t.Context(), 0); err != nil {
			t.Errorf("got %v, want it admitted", err)
		}
	}
	if got := third.Place(); got != 1 {
		t.Errorf("the third: got place %d, want 1", got)
	}
	if _, err := q.Enter(of("a"), 0); sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
		t.Errorf("the fourth: got %v, want queue_full", err)
	}
	q.SetBounds(1, 1)
	first.Release()
	if got := third.Place(); got != 1 {
		t.Errorf("with fewer places: got place %d, want the third to wait", got)
	}
	second.Release()
	if got := third.Place(); got != 0 {
		t.Errorf("at the end: got place %d, want the third admitted", got)
	}
	third.Release()
}

// TestLeavesAPlaceForOthers: a namespace whose requests go on takes every place but one as long as another known
// namespace has none. What waits may not stop the other one, whose requests come first there.
func TestLeavesAPlaceForOthers(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 3, MaxWaiting: 8, Known: []sandboxmcp.Namespace{"a", "b"}})
	a1, a2, a3 := enter(t, q, "a"), enter(t, q, "a"), enter(t, q, "a")
	if !isAdmitted(a1) || !isAdmitted(a2) {
		t.Fatal("the first two of a: got one waiting, want both admitted")
	}
	if got := a3.Place(); got != 1 {
		t.Fatalf("the third of a: got place %d, want it to wait for b", got)
	}
	b1 := enter(t, q, "b")
	if !isAdmitted(b1) {
		t.Fatal("the first of b: got it waiting, want it admitted")
	}
	b1.Release()
	if got := a3.Place(); got != 1 {
		t.Errorf("after b has ended: got place %d, want the third of a to wait", got)
	}
	b1, b2 := enter(t, q, "b"), enter(t, q, "b")
	if !isAdmitted(b1) || b2.Place() != 1 {
		t.Errorf("two of b: got places %d and %d, want 0 and 1", b1.Place(), b2.Place())
	}
	a1.Release()
	if a3.Place() != 0 || b2.Place() != 1 {
		t.Errorf("both have places: got places %d of a and %d of b, want 0 and 1: it is a's turn", a3.Place(), b2.Place())
	}
}

// TestRemembersNamespacesForWhichAPlaceIsKept: a namespace that nobody has named is known once it has entered. With one
// namespace, and with one place, none is kept.
func TestRemembersNamespacesForWhichAPlaceIsKept(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 2, MaxWaiting: 100, Known: []sandboxmcp.Namespace{"a"}})
	a1, a2 := enter(t, q, "a"), enter(t, q, "a")
	if !isAdmitted(a1) || !isAdmitted(a2) {
		t.Error("two of the only namespace: got one waiting, want both admitted")
	}
	a1.Release()
	all := enter(t, q, sandboxmcp.EveryNamespace)
	all.Release()
	if a1 = enter(t, q, "a"); !isAdmitted(a1) {
		t.Error("after a request of every namespace: got the second waiting, want both admitted")
	}
	b := enter(t, q, "b")
	a3 := enter(t, q, "a")
	a1.Release()
	if b.Place() != 0 || a3.Place() != 1 {
		t.Errorf("after one has ended: got places %d of b and %d of a, want 0 and 1", b.Place(), a3.Place())
	}
	b.Release()
	if got := a3.Place(); got != 1 {
		t.Errorf("b has been seen: got place %d, want the next of a to wait", got)
	}
	q.SetBounds(1, 100)
	a2.Release()
	if got := a3.Place(); got != 0 {
		t.Errorf("one place: got place %d, want a admitted", got)
	}
}

// TestSetKnownKeepsAPlace: namespaces that become known are left a place by the next request, and those that are known no
// longer are left none.
func TestSetKnownKeepsAPlace(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 2, MaxWaiting: 8})
	first := enter(t, q, "a")
	q.SetKnown([]sandboxmcp.Namespace{"b"}, nil)
	next := enter(t, q, "a")
	if !isAdmitted(first) || next.Place() != 1 {
		t.Errorf("got places %d and %d, want 0 and 1", first.Place(), next.Place())
	}
	q.SetKnown(nil, nil)
	if !isAdmitted(next) {
		t.Error("without other namespaces: got it waiting, want it admitted")
	}
}

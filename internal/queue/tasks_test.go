package queue_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
)

// waits starts Wait of a ticket and returns when the ticket is among those that
// wait for tasks, or has them.
func waits(t *testing.T, q *queue.Queue, tk *queue.Ticket, tasks int) (result chan error) {
	t.Helper()
	result = make(chan error, 1)
	before := q.Stats().Queued
	go func() { result <- tk.Wait(t.Context(), tasks) }()
	for q.Stats().Queued == before && len(result) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the ticket: got it neither waiting nor admitted, want one of them")
		}
	}
	return result
}

func mustFit(t *testing.T, tk *queue.Ticket, tasks int) {
	t.Helper()
	if err := tk.Wait(t.Context(), tasks); err != nil {
		t.Fatalf("Wait for %d tasks: got %v, want nil", tasks, err)
	}
}

// TestARequestThatDoesNotFitWaits: the tasks of all admitted requests stay within
// the bound, and one that does not fit is admitted when another has ended.
func TestARequestThatDoesNotFitWaits(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 8, MaxWaiting: 8, MaxTasks: 100})
	a, b := enter(t, q, "x"), enter(t, q, "x")
	mustFit(t, a, 50)
	mustFit(t, b, 40)
	c, d := enter(t, q, "y"), enter(t, q, "x")
	large := waits(t, q, c, 50)
	small := waits(t, q, d, 10) // it would fit, and does not overtake
	if got := q.Stats(); got.Queued != 2 || got.Active != 2 || c.Place() != 1 || d.Place() != 2 {
		t.Errorf("stats %+v, places %d and %d; want 2 queued, 2 active, places 1 and 2", got, c.Place(), d.Place())
	}
	a.Release()
	if err := <-large; err != nil {
		t.Errorf("the large one: got %v, want nil", err)
	}
	if err := <-small; err != nil {
		t.Errorf("the small one: got %v, want nil", err)
	}
	for _, tk := range []*queue.Ticket{b, c, d} {
		tk.Release()
	}
	all := enter(t, q, "x")
	mustFit(t, all, 100) // nothing is held any more
}

// TestWaitingForTasksCanBeCancelled: a request that gives up holds nothing, and
// those behind it go on.
func TestWaitingForTasksCanBeCancelled(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 8, MaxWaiting: 8, MaxTasks: 100})
	a, b, c := enter(t, q, "x"), enter(t, q, "x"), enter(t, q, "x")
	mustFit(t, a, 60)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- b.Wait(ctx, 50) }()
	for q.Stats().Queued == 0 && t.Context().Err() == nil {
	}
	behind := waits(t, q, c, 40)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that gave up: got %v, want canceled", err)
	}
	if err := <-behind; err != nil {
		t.Errorf("the one behind it: got %v, want nil", err)
	}
	if got := q.Stats(); got.Queued != 0 || got.Active != 2 {
		t.Errorf("stats %+v, want none queued and 2 active", got)
	}
}

// TestSessionsHoldTheirShare: a session keeps its tasks after its first run, and
// one that would take more than half of all is refused with a hint.
func TestSessionsHoldTheirShare(t *testing.T) {
	q := queue.New(queue.Config{MaxConcurrent: 8, MaxWaiting: 8, MaxTasks: 100})
	share, err := q.Reserve(of("x"), 40)
	if err != nil {
		t.Fatal(err)
	}
	first := enter(t, q, "x")
	mustFit(t, first, 40)
	share.Take(first)
	first.Release()
	if _, err := q.Reserve(of("x"), 20); sandboxmcp.CodeOf(err) != sandboxmcp.CodeMaxSessions || sandboxmcp.AsError(err).Hint == "" {
		t.Errorf("a session of too many tasks: got %v, want max_sessions with a hint", err)
	}
	run := enter(t, q, "x")
	mustFit(t, run, 60)
	next := enter(t, q, "x")
	waiting := waits(t, q, next, 40)
	if got := q.Stats().Queued; got != 1 {
		t.Errorf("%d queued beside the session's share, want 1", got)
	}
	share.Release()
	share.Release()
	if err := <-waiting; err != nil {
		t.Errorf("after the session's end: got %v, want nil", err)
	}
}

// TestARunAlwaysFitsBesideSessions: whatever sessions hold, the largest single
// request fits when no other runs.
func TestARunAlwaysFitsBesideSessions(t *testing.T) {
	cfg := queue.Config{MaxConcurrent: 2, MaxWaiting: 8, MaxTasks: 101}
	q := queue.New(cfg)
	for {
		s, err := q.Reserve(of("x"), 1)
		if err != nil {
			break
		}
		tk := q.EnterBeside(of("x"))
		mustFit(t, tk, 1)
		s.Take(tk)
		tk.Release()
	}
	mustFit(t, enter(t, q, "x"), cfg.MostTasks())
}

func TestTasksAreNeverExceeded(t *testing.T) {
	const most, n = 20, 300
	q := queue.New(queue.Config{MaxConcurrent: 16, MaxWaiting: n, MaxTasks: most})
	var mu sync.Mutex
	var wg sync.WaitGroup
	now, peak := 0, 0
	for i := range n {
		wg.Go(func() {
			tk, err := q.Enter(of(sandboxmcp.Namespace([]string{"a", "b", "c"}[i%3])), 0)
			tasks := 1 + i%9
			if err != nil || tk.Wait(t.Context(), tasks) != nil {
				t.Error("got a ticket that is not admitted, want it admitted")
				return
			}
			mu.Lock()
			now += tasks
			peak = max(peak, now)
			mu.Unlock()
			mu.Lock()
			now -= tasks
			mu.Unlock()
			tk.Release()
		})
	}
	wg.Wait()
	if s := q.Stats(); peak > most || s.Active != 0 || s.Queued != 0 {
		t.Errorf("peak of %d tasks, stats %+v; want at most %d and nothing left", peak, s, most)
	}
}

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// tasked is a fake whose sandboxes may have so many tasks together.
type tasked struct {
	*gate

	most int
}

func (f tasked) MaxTasks() int { return f.most }

func openTasked(t *testing.T) (*engine.Engine, *gate) {
	t.Helper()
	g := newGate()
	return open(t, &g.fake, func(c *engine.Config) {
		c.Backends, c.MaxConcurrent = []backend.Backend{tasked{g, 320}}, 8
	}), g
}

// TestARunThatDoesNotFitWaitsInTheQueue: it is not refused, counts as queued, can
// be cancelled, and goes on when another has ended.
func TestARunThatDoesNotFitWaitsInTheQueue(t *testing.T) {
	e, g := openTasked(t)
	for _, name := range []string{"a", "b"} { // 160 each
		start(t, e, "x", name)
	}
	eventually(t, "two run", func() bool { return len(g.order.list()) == 2 })
	third := start(t, e, "y", "c")
	eventually(t, "the third waits", func() bool { return stats(e).Queue.Queued == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	fourth := background(t, func() (sandboxmcp.Result, error) { return e.Execute(ctx, sandboxmcp.Caller{}, shell("d")) })
	eventually(t, "two wait", func() bool { return stats(e).Queue.Queued == 2 })
	if res, err := e.Lookup(t.Context(), sandboxmcp.Caller{Namespace: "y"}, sandboxmcp.Lookup{RequestID: third.RequestID}); err != nil || res.Metadata["queue_place"] != 1 {
		t.Errorf("the third: %v %v, want queue_place 1", res.Metadata, err)
	}
	cancel()
	if _, err := fourth(); code(err) != sandboxmcp.CodeCancelled {
		t.Errorf("a request that was cancelled while it waited: got %v, want cancelled", err)
	}
	if got := len(g.order.list()); got != 2 {
		t.Fatalf("%d run at once, want 2", got)
	}
	g.next <- struct{}{}
	eventually(t, "the third runs", func() bool { return len(g.order.list()) == 3 })
	for range 2 {
		g.next <- struct{}{}
	}
}

// TestALargerTaskLimitIsLoweredAndNamed: one sandbox may have half of the tasks;
// a caller that asks for strict limits is not refused for it.
func TestALargerTaskLimitIsLoweredAndNamed(t *testing.T) {
	e, g := openTasked(t)
	g.program = nil
	for _, strict := range []bool{false, true} {
		r := shell("x")
		r.Limits.MaxProcesses, r.Strict = 100, strict
		res, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
		if err != nil {
			t.Fatal(err)
		}
		if clamped, _ := res.Metadata["clamped"].([]string); res.Usage.MaxTasks != 160 || !slices.Contains(clamped, "max_processes") {
			t.Errorf("strict %v: got %d tasks, clamped %v; want 160 and max_processes", strict, res.Usage.MaxTasks, clamped)
		}
	}
}

// TestSessionsCountAmongTheTasks: a session that would exceed the sessions' half of the tasks
// is refused with a hint. A live one keeps its share until it ends.
func TestSessionsCountAmongTheTasks(t *testing.T) {
	e, g := openTasked(t)
	g.program = nil
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	refused := func(when string) {
		t.Helper()
		_, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
		if code(err) != sandboxmcp.CodeMaxSessions || sandboxmcp.AsError(err).Hint == "" {
			t.Errorf("%s: got %v, want max_sessions with a hint", when, err)
		}
		r := in("new", "x")
		r.Language = sandboxmcp.Shell
		if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r); code(err) != sandboxmcp.CodeMaxSessions {
			t.Errorf("%s, by a run: got %v, want max_sessions", when, err)
		}
	}
	refused("a second session")
	refused("and again: a refused one holds nothing and is not there")
	if n := stats(e).Sessions; n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("beside it")); err != nil {
		t.Errorf("another run meanwhile: got %v, want a result", err)
	}
	if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{}, id); err != nil {
		t.Fatal(err)
	}
	create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
}

// TestANewSessionWaitsForTasks: a new session waits while runs hold the tasks, and stops
// waiting when the engine is closed.
func TestANewSessionWaitsForTasks(t *testing.T) {
	e, g := openTasked(t)
	for _, name := range []string{"a", "b"} {
		start(t, e, "x", name)
	}
	eventually(t, "two run", func() bool { return len(g.order.list()) == 2 })
	made := func() (sandboxmcp.Session, error) {
		return e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	}
	first := background(t, made)
	eventually(t, "it waits", func() bool { return stats(e).Queue.Queued == 1 })
	g.next <- struct{}{}
	if _, err := first(); err != nil {
		t.Errorf("the session once a run has ended: got %v, want it", err)
	}
	start(t, e, "x", "c") // waits for b
	eventually(t, "it waits", func() bool { return stats(e).Queue.Queued == 1 })
	if err := e.Close(); err != nil {
		t.Errorf("Close while a request waits for tasks: got %v, want nil", err)
	}
}

// TestTaskLimitsOfLivingSandboxes: on this machine's kernel, requests whose limits
// add up to more than the bound run one after the other and all end well.
func TestTaskLimitsOfLivingSandboxes(t *testing.T) {
	e := openReal(t, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends, c.MaxConcurrent = []backend.Backend{process.New(process.Config{MaxTasks: 128})}, 6
	})
	needs(t, e, sandboxmcp.Shell)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell, Limits: sandboxmcp.Limits{MaxProcesses: 4}})
	var waits []func() (sandboxmcp.Result, error)
	for i := range 12 {
		waits = append(waits, background(t, func() (sandboxmcp.Result, error) {
			r := shell("sleep 0.05; echo done")
			r.Limits.MaxProcesses = 4
			if i%4 == 0 {
				r.SessionID, r.Session = id, nil
			}
			for {
				res, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
				if code(err) != sandboxmcp.CodeSessionBusy {
					return res, err
				}
			}
		}))
	}
	for i, wait := range waits {
		if res, err := wait(); err != nil || res.Stdout != "done\n" {
			t.Errorf("request %d: %q %v, want done", i, res.Stdout, err)
		}
	}
	if got := fmt.Sprint(stats(e).Queue.Active, stats(e).Queue.Queued); got != "0 0" {
		t.Errorf("active and queued: %s, want 0 0", got)
	}
}

// TestARunIsToldThatItWaitsForTasks: a request that is admitted while its tasks do not fit has to wait,
// too. If its caller then gives it up, it does not wait for them.
func TestARunIsToldThatItWaitsForTasks(t *testing.T) {
	e, g := openTasked(t)
	for _, name := range []string{"a", "b"} { // 160 each
		start(t, e, "x", name)
	}
	eventually(t, "two run", func() bool { return len(g.order.list()) == 2 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var places []int
	r := shell("c")
	r.ID, r.Queued = "third", func(place func() int) {
		places = append(places, place())
		cancel()
	}
	wait := executeIn(ctx, t, e, r)
	if _, err := wait(); code(err) != sandboxmcp.CodeCancelled {
		t.Errorf("a run that was given up when it was told to wait: got %v, want cancelled", err)
	}
	if !slices.Equal(places, []int{1}) {
		t.Errorf("places that it was told: got %v, want 1 once", places)
	}
	if s := stats(e).Queue; s.Queued != 0 || s.Active != 2 {
		t.Errorf("the queue afterwards: got %+v, want two active and none queued", s)
	}
	wantNoEntries(t, e, r.ID)
	for range 2 {
		g.next <- struct{}{}
	}
}

package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// gate is a fake whose programs each wait to be let through.
type gate struct {
	fake

	order lines
	next  chan struct{}
}

func newGate() *gate {
	g := &gate{next: make(chan struct{})}
	g.program = func(r *fakeRun) backend.Exit {
		g.order.add(r.Code())
		select {
		case <-g.next:
			return backend.Exit{}
		case <-r.Killed:
			return backend.Exit{Signal: 9}
		}
	}
	return g
}

func one(c *engine.Config) { c.MaxConcurrent = 1 }

// start starts a background run, which takes its place in the queue at once.
func start(t *testing.T, e *engine.Engine, ns sandboxmcp.Namespace, code string) sandboxmcp.Result {
	t.Helper()
	res, err := e.Start(t.Context(), of(ns), shell(code))
	if err != nil {
		t.Fatalf("start %s: got %v, want nil", code, err)
	}
	return res
}

// TestFair: a namespace with many requests does not keep another one from its turn.
func TestFair(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one)
	start(t, e, "a", "a0")
	eventually(t, "the first runs", func() bool { return len(g.order.list()) == 1 })
	for _, w := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
		start(t, e, sandboxmcp.Namespace(w[:1]), w)
	}
	want := []string{"a0", "a1", "b1", "c1", "a2", "b2", "a3"}
	for i := range want {
		eventually(t, want[i]+" runs", func() bool { return len(g.order.list()) == i+1 })
		if s := stats(e).Queue; s.Active != 1 || s.Queued != len(want)-1-i || s.MaxConcurrent != 1 {
			t.Errorf("queue when %d had begun: got %+v, want one active and the others queued", i+1, s)
		}
		g.next <- struct{}{}
	}
	if diff := cmp.Diff(want, g.order.list()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	eventually(t, "all have ended", func() bool { s := stats(e).Queue; return s.TotalProcessed == 7 && s.Active == 0 })
}

// TestBounded: never more programs run at once than allowed, and all of them run in the end.
func TestBounded(t *testing.T) {
	busy, most, leave := make(chan struct{}, 100), make(chan int, 100), make(chan struct{})
	f := &fake{}
	f.program = func(*fakeRun) backend.Exit {
		busy <- struct{}{}
		most <- len(busy)
		<-leave
		<-busy
		return backend.Exit{}
	}
	e := open(t, f, func(c *engine.Config) { c.MaxConcurrent = 3 })
	var waits []func() (sandboxmcp.Result, error)
	for i := range 20 {
		waits = append(waits, executeIn(t.Context(), t, e, shell(fmt.Sprint("echo ", i))))
	}
	eventually(t, "3 programs run and 17 requests wait", func() bool { return len(busy) == 3 && stats(e).Queue.Queued == 17 })
	close(leave)
	for _, wait := range waits {
		if res, err := wait(); err != nil || !res.Success {
			t.Errorf("got %+v, %v", res, err)
		}
	}
	close(most)
	peak := 0
	for n := range most {
		peak = max(peak, n)
	}
	if peak != 3 {
		t.Errorf("%d ran at once, want 3", peak)
	}
}

func TestQueueFull(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one, func(c *engine.Config) { c.MaxQueued = 2 })
	start(t, e, "a", "runs")
	for i := 1; i <= 2; i++ {
		if res := start(t, e, "a", "waits"); res.Status != sandboxmcp.StatusRunning || res.Metadata["queue_place"] != i {
			t.Errorf("got %s, metadata %v; want running and the place %d", res.Status, res.Metadata, i)
		}
	}
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{Namespace: "a"}, sandboxmcp.Request{Code: "x"})
	bad := asCode(t, err, sandboxmcp.CodeQueueFull)
	if bad.Fields["place"] != 3 || bad.Fields["retry_after_seconds"] == nil {
		t.Errorf("got fields %v, want the place and when to ask again", bad.Fields)
	}
	start(t, e, "b", "another namespace's")
}

// TestWaitingCancelled: a request whose caller leaves while it waits starts nothing and leaves
// nothing.
func TestWaitingCancelled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	g := newGate()
	e := open(t, &g.fake, one, at(dir))
	first := start(t, e, "", "runs")
	ctx, cancel := context.WithCancel(t.Context())
	wait := executeIn(ctx, t, e, shell("waits"))
	eventually(t, "it waits", func() bool { return stats(e).Queue.Queued == 1 })
	later := start(t, e, "", "later")
	cancel()
	_, err := wait()
	wantCode(t, err, sandboxmcp.CodeCancelled)
	if s := stats(e).Queue; s.Queued != 1 || s.Active != 1 {
		t.Errorf("the queue is %+v, want one that runs and one that waits", s)
	}
	g.next <- struct{}{}
	g.next <- struct{}{}
	for _, id := range []sandboxmcp.RequestID{first.RequestID, later.RequestID} {
		if res, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: id, Wait: 10 * time.Second}); err != nil || !res.Success {
			t.Errorf("got %+v, %v", res, err)
		}
	}
	if diff := cmp.Diff([]string{"runs", "later"}, g.order.list()); diff != "" {
		t.Errorf("what ran (-want +got):\n%s", diff)
	}
	if n := len(rows(t, dir, "default")); n != 4 {
		t.Errorf("%d entries are in the audit, want those of two runs", n)
	}
	// A context that has ended before the call does nothing either.
	_, err = e.Execute(ctx, sandboxmcp.Caller{}, shell("too late"))
	wantCode(t, err, sandboxmcp.CodeCancelled)
	if n, _ := g.starts(); n != 2 {
		t.Errorf("programs started: got %d, want 2", n)
	}
}

// TestCancelDuringOpen: a request that is cancelled while its sandbox is built starts no
// program, and the audit record has the outcome.
func TestCancelDuringOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{onOpen: func(ctx context.Context, _ backend.Spec) error { <-ctx.Done(); return ctx.Err() }}
	e := open(t, f, at(dir))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := executeIn(ctx, t, e, shell("x"))
	eventually(t, "the intent is written", func() bool { return len(rows(t, dir, "default")) == 1 })
	cancel()
	_, err := wait()
	wantCode(t, err, sandboxmcp.CodeCancelled)
	if started, _ := f.starts(); started != 0 {
		t.Errorf("programs started: got %d, want none", started)
	}
	if list := rows(t, dir, "default"); len(list) != 2 || list[1].Detail != "shell: cancelled" || list[1].Success == nil || *list[1].Success {
		t.Errorf("audit: got %+v, want 2 entries, the last cancelled without success", list)
	}
}

// TestCancelDuringStart: the same while its program is started. The sandbox is given back.
func TestCancelDuringStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{onStart: func(backend.Process) error { cancel(); return nil }}
	e := open(t, f, at(dir))
	_, err := e.Execute(ctx, sandboxmcp.Caller{}, shell("x"))
	wantCode(t, err, sandboxmcp.CodeCancelled)
	eventually(t, "the sandbox is given back", func() bool { started, open := f.starts(); return started == 0 && open == 0 })
	if list := rows(t, dir, "default"); len(list) != 2 || list[1].Detail != "shell: cancelled" {
		t.Errorf("audit: got %+v, want 2 entries, the last cancelled", list)
	}
}

// TestSlowStart: if the time is up before the program runs, the run has timed out all the
// same.
func TestSlowStart(t *testing.T) {
	slow := func(backend.Process) error {
		time.Sleep(100 * time.Millisecond) // longer than the run may take
		return nil
	}
	f := &fake{onStart: slow, program: (*fakeRun).Hang}
	r := shell("x")
	r.Limits.TimeoutSeconds = 0.05
	if res := execute(t, open(t, f), r); res.Status != sandboxmcp.StatusTimedOut || res.ExitCode != -1 {
		t.Errorf("got %s, exit %d; want timed_out", res.Status, res.ExitCode)
	}
}

// TestCancel: Cancel takes the id of a run in the foreground, of one that waits and of one
// that has ended.
func TestCancel(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one)
	named := func(id sandboxmcp.RequestID) sandboxmcp.Request {
		r := shell(string(id))
		r.ID = id
		return r
	}
	running := executeIn(t.Context(), t, e, named("runs"), of("a"))
	eventually(t, "it runs", func() bool { return len(g.order.list()) == 1 })
	waiting := executeIn(t.Context(), t, e, named("waits"), of("a"))
	eventually(t, "it waits", func() bool { return stats(e).Queue.Queued == 1 })

	wantCode(t, e.Cancel(t.Context(), sandboxmcp.Caller{Namespace: "a"}, "nobody"), sandboxmcp.CodeRequestNotFound)
	wantCode(t, e.Cancel(t.Context(), sandboxmcp.Caller{Namespace: "b"}, "runs"), sandboxmcp.CodeRequestNotFound)
	wantCode(t, e.Cancel(t.Context(), sandboxmcp.Caller{}, "runs"), sandboxmcp.CodeRequestNotFound)
	if err := e.Cancel(t.Context(), sandboxmcp.Caller{Namespace: "a"}, "waits"); err != nil {
		t.Fatal(err)
	}
	_, err := waiting()
	wantCode(t, err, sandboxmcp.CodeCancelled)
	if err := e.Cancel(t.Context(), sandboxmcp.Caller{Namespace: "a"}, "runs"); err != nil {
		t.Fatal(err)
	}
	res, err := running()
	if err != nil || res.Status != sandboxmcp.StatusCancelled || res.ExitCode != -1 || res.Success || res.Receipt == nil {
		t.Errorf("got %+v, %v; want the status cancelled, -1 and a receipt", res, err)
	}
	wantCode(t, e.Cancel(t.Context(), sandboxmcp.Caller{Namespace: "a"}, "runs"), sandboxmcp.CodeRequestNotFound)
	if again, err := e.Lookup(t.Context(), sandboxmcp.Caller{Namespace: "a"}, sandboxmcp.Lookup{RequestID: "runs"}); err != nil || again.Status != sandboxmcp.StatusCancelled {
		t.Errorf("as kept: got %+v, %v; want cancelled", again, err)
	}
}

// TestCallerDeadline: the deadline of a caller's context is a cancellation and not a timeout
// of the run.
func TestCallerDeadline(t *testing.T) {
	e := open(t, &fake{program: (*fakeRun).Hang})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	res, err := e.Execute(ctx, sandboxmcp.Caller{}, shell("x"))
	if err != nil || res.Status != sandboxmcp.StatusCancelled || res.Stderr != "" {
		t.Errorf("got %+v, %v; want cancelled", res, err)
	}
}

// TestRefusedRequestsLeaveTheQueueAsItWas: requests that are refused behind a full
// queue, because their session is busy or their domains are not open, never let
// more run at once than the bound, and change no counter.
func TestRefusedRequestsLeaveTheQueueAsItWas(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one)
	start(t, e, "a", "runs")
	eventually(t, "the first runs", func() bool { return len(g.order.list()) == 1 })
	start(t, e, "a", "waits")
	before := stats(e)
	closed := shell("x")
	closed.AllowedDomains = []string{"api.site.test"}
	for range 8 {
		_, err := e.Execute(t.Context(), of("a"), closed)
		wantCode(t, err, sandboxmcp.CodeEgressDenied)
	}
	after := stats(e)
	if after.Queue != before.Queue {
		t.Errorf("the queue after 8 refusals: got %+v, want %+v", after.Queue, before.Queue)
	}
	if diff := cmp.Diff(before.Executions, after.Executions); diff != "" {
		t.Errorf("the executions after 8 refusals (-want +got):\n%s", diff)
	}
	start(t, e, "b", "waits too")
	if s := stats(e).Queue; s.Active != 1 || s.Queued != 2 {
		t.Errorf("after another request: got %+v, want 1 active and 2 queued", s)
	}
	if ran := g.order.list(); len(ran) != 1 {
		t.Errorf("%v run at once, want one", ran)
	}
	close(g.next)
	eventually(t, "all have run", func() bool { return len(g.order.list()) == 3 })
}

// TestARequestThatWaitsTellsItsPlace: its caller can ask for the place until it runs; one that runs
// at once is not asked about.
func TestARequestThatWaitsTellsItsPlace(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one)
	places := make(chan func() int, 2)
	queued := func(place func() int) { places <- place }
	request := shell("first")
	request.Queued = queued
	executeIn(t.Context(), t, e, request)
	eventually(t, "the first runs", func() bool { return len(g.order.list()) == 1 })
	start(t, e, "", "second")
	request = shell("third")
	request.Queued = queued
	executeIn(t.Context(), t, e, request)
	place := <-places
	if got := place(); got != 2 {
		t.Errorf("got place %d, want 2", got)
	}
	g.next <- struct{}{}
	eventually(t, "it is next", func() bool { return place() == 1 })
	g.next <- struct{}{}
	eventually(t, "it waits no longer", func() bool { return place() == 0 })
	g.next <- struct{}{}
	if len(places) != 0 {
		t.Error("got a call for the first request, which did not wait")
	}
}

// TestARunGivenUpAtItsTurnIsNotRecorded: a caller gives up a request that waits, and the request is
// admitted at the same moment. It has then not been taken: another process may execute it.
func TestARunGivenUpAtItsTurnIsNotRecorded(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one)
	start(t, e, "", "runs")
	eventually(t, "the first runs", func() bool { return len(g.order.list()) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := shell("waits")
	r.ID, r.Queued = "second", func(place func() int) {
		g.next <- struct{}{}
		eventually(t, "the second is admitted", func() bool { return place() == 0 })
		cancel()
	}
	_, err := e.Execute(ctx, sandboxmcp.Caller{}, r)
	wantCode(t, err, sandboxmcp.CodeCancelled)
	wantNoEntries(t, e, r.ID)
	if got := g.order.list(); len(got) != 1 {
		t.Errorf("programs that ran: got %q, want the first", got)
	}
	g.mu.Lock()
	if len(g.specs) != 1 {
		t.Errorf("sandboxes that were asked for: got %d, want that of the first", len(g.specs))
	}
	g.mu.Unlock()
	eventually(t, "its place is free", func() bool { s := stats(e).Queue; return s.Active == 0 && s.Queued == 0 && s.TotalProcessed == 1 })
}

// wantNoEntries fails if the audit log of the default namespace has an entry of a request.
func wantNoEntries(t *testing.T, e *engine.Engine, id sandboxmcp.RequestID) {
	t.Helper()
	all, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all.Entries {
		if entry.RequestID == id {
			t.Errorf("audit log: got the entry %+v, want none of request %s", entry, id)
		}
	}
}

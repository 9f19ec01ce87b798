package engine

import (
	"context"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestWorkOfTheServerTakesTurns: while as much is done as may be at once, a further call
// waits until it is cancelled, and too many that wait are refused.
func TestWorkOfTheServerTakesTurns(t *testing.T) {
	e := &Engine{parses: newTurns(1), fetches: newTurns(1), cfg: Config{MaxCodeBytes: 100}}
	e.inForce.Store(&e.cfg)
	e.openWeb()
	who := sandboxmcp.Caller{Namespace: "default"}
	check := func(l sandboxmcp.Language) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := e.check(ctx, who, sandboxmcp.CodeCheck{Code: "a", Language: l})
			return err
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		q    *queue.Queue
		call func(context.Context) error
		free sandboxmcp.Code // with a place
	}{
		"node":  {e.parses, check(sandboxmcp.Node), ""},
		"shell": {e.parses, check(sandboxmcp.Shell), ""},
		"fetch": {e.fetches, func(ctx context.Context) error {
			_, err := e.fetch(ctx, who, sandboxmcp.PageAsk{URL: "http://127.0.0.1:1/"})
			return err
		}, sandboxmcp.CodeBlockedAddress},
		"search": {e.fetches, func(ctx context.Context) error {
			_, err := e.search(ctx, who, sandboxmcp.SearchAsk{})
			return err
		}, sandboxmcp.CodeInvalidArgument},
	} {
		if got := codeOf(c.call(t.Context())); got != c.free {
			t.Errorf("%s: got %q, want %q", name, got, c.free)
		}
		done, err := inTurn(t.Context(), c.q, sandboxmcp.Caller{Namespace: "other"})
		if err != nil {
			t.Fatal(err)
		}
		if got := codeOf(c.call(over)); got != sandboxmcp.CodeCancelled {
			t.Errorf("%s with no place left: got %q, want cancelled", name, got)
		}
		var waiting []*queue.Ticket
		for range maxInTurn {
			w, err := c.q.Enter(who, 0)
			if err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, w)
		}
		if got := codeOf(c.call(t.Context())); got != sandboxmcp.CodeQueueFull {
			t.Errorf("%s behind %d others: got %q, want queue_full", name, maxInTurn, got)
		}
		for _, w := range waiting {
			w.Leave()
		}
		done()
	}
}

func codeOf(err error) sandboxmcp.Code {
	if err == nil {
		return ""
	}
	return sandboxmcp.CodeOf(err)
}

// TestEveryQueueLeavesAPlaceForOthers: what a namespace has runs on for as long as it likes, and may be an hour. Of
// everything that waits for places, it leaves one to the other namespaces that the settings name.
func TestEveryQueueLeavesAPlaceForOthers(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), HostAccess: true, Namespaces: []sandboxmcp.Namespace{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, q := range map[string]*queue.Queue{
		"runs": e.queue, "parses": e.parses, "fetches": e.fetches, "commands": e.commands, "files of the host": e.hostFiles,
		"installations": e.installs, "installations of cells": e.cellInstalls, "reads of the record": e.scans, "outputs so far": e.outputs, "results": e.loads,
	} {
		all := q.Stats().MaxConcurrent
		for range all - 1 {
			if _, err := inTurn(t.Context(), q, sandboxmcp.Caller{Namespace: "a"}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if _, err := inTurn(over, q, sandboxmcp.Caller{Namespace: "a"}); codeOf(err) != sandboxmcp.CodeCancelled {
			t.Errorf("%s: number %d of a: got %v, want it to wait", name, all, err)
		}
		if done, err := inTurn(t.Context(), q, sandboxmcp.Caller{Namespace: "b"}); err != nil {
			t.Errorf("%s: the first of b: got %v, want it admitted", name, err)
		} else {
			done()
		}
	}
	next := e.cfg
	next.Namespaces = nil
	e.apply(next, host.Rules{})
	if _, err := inTurn(t.Context(), e.cellInstalls, sandboxmcp.Caller{Namespace: "a"}); err != nil {
		t.Errorf("the settings name no other namespace anymore: got %v, want every place for a", err)
	}
}

// TestListsOfTheRecordTakeTurns: while a namespace reads the record for as long as it likes, another one reads it too, and
// the store has a connection more for what runs read.
func TestListsOfTheRecordTakeTurns(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), Namespaces: []sandboxmcp.Namespace{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for range maxScans - 1 {
		if _, err := inTurn(t.Context(), e.scans, sandboxmcp.Caller{Namespace: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Audit(over, sandboxmcp.Caller{Namespace: "a"}, sandboxmcp.AuditQuery{}); codeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("a further list of a: got %v, want it to wait", err)
	}
	if _, err := e.Audit(t.Context(), sandboxmcp.Caller{Namespace: "b"}, sandboxmcp.AuditQuery{}); err != nil {
		t.Errorf("a list of b: got %v, want it", err)
	}
	last, err := inTurn(t.Context(), e.scans, sandboxmcp.Caller{Namespace: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.VerifyAudit(over, sandboxmcp.Caller{}); codeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("with no place left: got %v of a check of the whole record, want it to wait", err)
	}
	last()
	if got := e.store.DB().Stats().MaxOpenConnections; got <= maxScans {
		t.Errorf("got %d connections that read, want more than the %d reads of the record", got, maxScans)
	}
}

// TestLookUpsTakeTurns: while a namespace copies the output of its runs for as long as it likes, another one looks up its
// own run, and a look-up whose caller has left copies nothing.
func TestLookUpsTakeTurns(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), Namespaces: []sandboxmcp.Namespace{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	look := func(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.Result, error) {
		return e.Lookup(ctx, sandboxmcp.Caller{Namespace: ns}, sandboxmcp.Lookup{RequestID: sandboxmcp.RequestID("req-" + ns)})
	}
	for _, ns := range e.cfg.Namespaces {
		r, _ := run.Begin(t.Context(), run.Config{Now: time.Now, Limits: sandboxmcp.Limits{MaxOutputBytes: 100, TimeoutSeconds: 3600}})
		defer r.Close()
		if _, err = r.Stdout.Write([]byte("of " + ns)); err != nil {
			t.Fatal(err)
		}
		id := sandboxmcp.RequestID("req-" + ns)
		x := &execution{order: order{who: sandboxmcp.Caller{Namespace: ns}, req: sandboxmcp.Request{ID: id}}, run: r, done: make(chan struct{}), cancel: func(error) {}}
		e.mu.Lock()
		e.live[id] = x
		e.mu.Unlock()
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = look(over, "a"); codeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("a caller that has left: got %v, want cancelled", err)
	}
	for range maxOutputs - 1 {
		if _, err = inTurn(t.Context(), e.outputs, sandboxmcp.Caller{Namespace: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	const waiting = maxInTurn + 1 // none is refused
	ended := make(chan error, waiting)
	all, stop := context.WithCancel(t.Context())
	for range waiting {
		go func() {
			_, err := look(all, "a")
			ended <- err
		}()
	}
	testkit.UntilEqual(t, "look-ups of a that wait", waiting, func() int { return e.outputs.Stats().Queued })
	if got, err := look(t.Context(), "b"); err != nil || got.Stdout != "of b" {
		t.Errorf("a look-up of b: got %q and %v, want its output", got.Stdout, err)
	}
	stop()
	for range waiting {
		if err := <-ended; codeOf(err) != sandboxmcp.CodeCancelled {
			t.Errorf("a look-up of a: got %v, want cancelled", err)
		}
	}
}

// TestLookUpsOfResultsTakeTurns: results are large, and a namespace may ask for many at once. Another one gets its own
// meanwhile.
func TestLookUpsOfResultsTakeTurns(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), Namespaces: []sandboxmcp.Namespace{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for range maxLoads - 1 {
		if _, err = inTurn(t.Context(), e.loads, sandboxmcp.Caller{Namespace: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	look := func(ctx context.Context, ns sandboxmcp.Namespace) sandboxmcp.Code {
		_, err := e.Lookup(ctx, sandboxmcp.Caller{Namespace: ns}, sandboxmcp.Lookup{RequestID: "req-1"})
		return codeOf(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if code := look(over, "a"); code != sandboxmcp.CodeCancelled {
		t.Errorf("a further look-up of a: got %v, want it to wait", code)
	}
	if code := look(t.Context(), "b"); code != sandboxmcp.CodeRequestNotFound {
		t.Errorf("a look-up of b: got %v, want %v", code, sandboxmcp.CodeRequestNotFound)
	}
}

// TestKnownPackagesTakeTurns: the list of known packages takes memory until it is recorded and answered, and a caller may ask for it
// on each of its connections.
func TestKnownPackagesTakeTurns(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), Namespaces: []sandboxmcp.Namespace{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	_, err = e.backends[e.cfg.DefaultBackend].Interpreter(t.Context(), sandboxmcp.Python)
	testkit.Need(t, "python", err == nil, "python is not here")
	for range maxRecalls - 1 {
		if _, err = inTurn(t.Context(), e.recalls, sandboxmcp.Caller{Namespace: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	const waiting = maxInTurn + 1 // none is refused
	ended := make(chan error, waiting)
	all, stop := context.WithCancel(t.Context())
	for range waiting {
		go func() {
			_, err := e.Install(all, sandboxmcp.Caller{Namespace: "a"}, sandboxmcp.InstallAsk{Language: sandboxmcp.Python, Packages: []string{"demo"}})
			ended <- err
		}()
	}
	testkit.UntilEqual(t, "installations of a that wait", waiting, func() int { return e.recalls.Stats().Queued })
	stop()
	for range waiting {
		if err := <-ended; codeOf(err) != sandboxmcp.CodeCancelled {
			t.Errorf("an installation of a: got %v, want cancelled", err)
		}
	}
}

// TestAPlaceIsKeptForStrangers: where tokens name namespaces, one that was not seen before finds a place for a run and for
// a session.
func TestAPlaceIsKeptForStrangers(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir(), Strangers: true, MaxSessions: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for n := 1; ; n++ {
		over, cancel := context.WithTimeout(t.Context(), 0)
		_, err = inTurn(over, e.scans, sandboxmcp.Caller{Namespace: "a"})
		cancel()
		if err != nil || n > maxScans {
			break
		}
	}
	if codeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("the last place for reads of the record: got %v for the namespace that has all other places, want it to wait", err)
	}
	done, err := inTurn(t.Context(), e.scans, sandboxmcp.Caller{Namespace: "new"})
	if err != nil {
		t.Fatal(err)
	}
	done()
	claim := func(ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error {
		_, _, err := e.sessions.Claim(t.Context(), "", sandboxmcp.Session{Namespace: ns, ID: id}, time.Hour, false)
		return err
	}
	for _, id := range []sandboxmcp.SessionID{"1", "2", "3"} {
		if err = claim("a", id); err != nil {
			t.Fatal(err)
		}
	}
	if err = claim("a", "4"); codeOf(err) != sandboxmcp.CodeMaxSessions {
		t.Errorf("the last session of a: got %v, want max_sessions", err)
	}
	if err = claim("new", "1"); err != nil {
		t.Errorf("the first session of another namespace: got %v, want it", err)
	}
}

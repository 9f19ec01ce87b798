package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func lookup(t *testing.T, e *engine.Engine, q sandboxmcp.Lookup, who ...sandboxmcp.Caller) sandboxmcp.Result {
	t.Helper()
	res, err := e.Lookup(t.Context(), callerOf(who), q)
	if err != nil {
		t.Fatalf("Lookup of %s: got %v, want a result", q.RequestID, err)
	}
	return res
}

// TestBackground: a run goes on without its caller, and Lookup reports each of its stages.
func TestBackground(t *testing.T) {
	g := newGate()
	g.files = map[string]string{"a.txt": "A"}
	e := open(t, &g.fake)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := e.Start(ctx, sandboxmcp.Caller{}, shell("x"))
	cancel()
	if err != nil || res.Status != sandboxmcp.StatusRunning || res.RequestID == "" || res.Receipt != nil || res.Success {
		t.Fatalf("got %+v, %v; want running and an id", res, err)
	}
	q := sandboxmcp.Lookup{RequestID: res.RequestID}
	if got := lookup(t, e, q); got.Status != sandboxmcp.StatusRunning {
		t.Errorf("got %s, want running", got.Status)
	}
	q.Wait = 30 * time.Millisecond
	begin := time.Now()
	if got := lookup(t, e, q); got.Status != sandboxmcp.StatusRunning || time.Since(begin) < q.Wait {
		t.Errorf("got %s after %v, want running after %v", got.Status, time.Since(begin), q.Wait)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = e.Lookup(short, sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: res.RequestID, Wait: time.Hour})
	wantCode(t, err, sandboxmcp.CodeCancelled)
	_, err = e.Lookup(t.Context(), sandboxmcp.Caller{Namespace: "other"}, sandboxmcp.Lookup{RequestID: res.RequestID, Cancel: true})
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)

	q.Wait = 10 * time.Second
	wait := background(t, func() (sandboxmcp.Result, error) { return e.Lookup(t.Context(), sandboxmcp.Caller{}, q) })
	g.next <- struct{}{}
	if got, err := wait(); err != nil || got.Status != sandboxmcp.StatusCompleted || got.Receipt == nil || len(got.Artifacts) != 1 || len(got.Artifacts[0].ContentB64) != 0 {
		t.Errorf("got %+v, %v; want it completed, with a receipt and an artifact without content", got, err)
	}
	q.Content = true
	if got := lookup(t, e, q); string(got.Artifacts[0].ContentB64) != "A" {
		t.Errorf("got content %q", got.Artifacts[0].ContentB64)
	}
	q.Cancel = true // of what has ended does nothing
	if got := lookup(t, e, q); got.Status != sandboxmcp.StatusCompleted {
		t.Errorf("got %s after a late cancel", got.Status)
	}
}

// TestBackgroundCancelled: a background run can be cancelled while it runs and while it waits.
func TestBackgroundCancelled(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one)
	running := start(t, e, "", "runs")
	eventually(t, "it runs", func() bool { return len(g.order.list()) == 1 })
	waiting := start(t, e, "", "waits")
	_, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: waiting.RequestID, Cancel: true})
	wantCode(t, err, sandboxmcp.CodeCancelled)
	got := lookup(t, e, sandboxmcp.Lookup{RequestID: running.RequestID, Cancel: true})
	if got.Status != sandboxmcp.StatusCancelled || got.ExitCode != -1 {
		t.Errorf("got %+v, want cancelled", got)
	}
	if n, _ := g.starts(); n != 1 {
		t.Errorf("programs started: got %d, want 1", n)
	}
}

// The input that all background runs hold together is bounded, because no caller waits for
// them.
func TestBackgroundRunsHoldSoMuchInput(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake, one)
	large := func() sandboxmcp.Request {
		r := shell("x")
		r.Stdin = make([]byte, 150<<20) // takes no memory before it is read
		return r
	}
	first, err := e.Start(t.Context(), sandboxmcp.Caller{}, large())
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Start(t.Context(), sandboxmcp.Caller{Namespace: "other"}, large())
	wantCode(t, err, sandboxmcp.CodeQueueFull)
	_, err = e.Start(t.Context(), sandboxmcp.Caller{}, shell("more than it leaves to others"))
	wantCode(t, err, sandboxmcp.CodeQueueFull)
	small := start(t, e, "other", "small")
	_, _ = e.Lookup(t.Context(), sandboxmcp.Caller{Namespace: "other"}, sandboxmcp.Lookup{RequestID: small.RequestID, Cancel: true})
	_, _ = e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: first.RequestID, Cancel: true})
	eventually(t, "there is room again", func() bool {
		again, err := e.Start(t.Context(), sandboxmcp.Caller{}, large())
		if err == nil {
			_, _ = e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: again.RequestID, Cancel: true})
		}
		return err == nil
	})
}

// TestBackgroundFailed: Lookup of a background run that could not be carried out returns the
// reason.
func TestBackgroundFailed(t *testing.T) {
	f := &fake{onOpen: func(context.Context, backend.Spec) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "no walls").WithHint("build some")
	}}
	e := open(t, f)
	res := start(t, e, "a", "x")
	for range 2 {
		_, err := e.Lookup(t.Context(), sandboxmcp.Caller{Namespace: "a"}, sandboxmcp.Lookup{RequestID: res.RequestID, Wait: 10 * time.Second})
		if bad := asCode(t, err, sandboxmcp.CodeIsolationUnavailable); bad.Message != "no walls" || bad.Hint != "build some" {
			t.Errorf("got %+v", bad)
		}
	}
	_, err := e.Lookup(t.Context(), sandboxmcp.Caller{Namespace: "b"}, sandboxmcp.Lookup{RequestID: res.RequestID})
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	_, err = e.Start(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: " "})
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
}

// TestForegroundIsNotEndedByLookup: only a background run is cancelled that way.
func TestForegroundIsNotEndedByLookup(t *testing.T) {
	g := newGate()
	e := open(t, &g.fake)
	r := shell("x")
	r.ID = "fore"
	wait := executeIn(t.Context(), t, e, r)
	eventually(t, "it runs", func() bool { return len(g.order.list()) == 1 })
	if got := lookup(t, e, sandboxmcp.Lookup{RequestID: "fore", Cancel: true}); got.Status != sandboxmcp.StatusRunning {
		t.Errorf("got %s, want running", got.Status)
	}
	g.next <- struct{}{}
	if res, err := wait(); err != nil || !res.Success {
		t.Errorf("got %+v, %v", res, err)
	}
}

// TestAnotherProcess: another engine on the same state directory returns the same for a run
// that has ended, and nothing to another namespace.
func TestAnotherProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{files: map[string]string{"a.txt": "A", "sub/b.txt": "B", "big": strings.Repeat("0123456789", 10_000), "evil": "link"}}
	f.program = func(r *fakeRun) backend.Exit {
		fmt.Fprint(r.Stdout, strings.Repeat("out\n", 50_000)) // kept outside of the database
		fmt.Fprint(r.Stderr, "err\xff")
		return backend.Exit{Signal: 6}
	}
	e := open(t, f, at(dir))
	res := execute(t, e, sandboxmcp.Request{Code: "x", Limits: sandboxmcp.Limits{TimeoutSeconds: 1e6}}, of("a"))
	other := open(t, &fake{}, at(dir))
	for name, who := range map[string]*engine.Engine{"same": e, "other": other} {
		got := lookup(t, who, sandboxmcp.Lookup{RequestID: res.RequestID, Content: true}, of("a"))
		if diff := cmp.Diff(asJSON(t, res), asJSON(t, got)); diff != "" {
			t.Errorf("%s engine (-answered +kept):\n%s", name, diff)
		}
		for stream, want := range map[string]string{"stdout": res.Stdout, "stderr": "err\ufffd"} {
			if b, err := who.Output(t.Context(), sandboxmcp.Caller{Namespace: "a"}, res.RequestID, stream); err != nil || string(b) != want {
				t.Errorf("%s engine: %s has %d bytes, %v; want %d", name, stream, len(b), err, len(want))
			}
		}
		a, err := who.ArtifactContent(t.Context(), sandboxmcp.Caller{Namespace: "a"}, res.RequestID, "sub/b.txt")
		if err != nil || string(a.ContentB64) != "B" || a.Path != "/mnt/data/sub/b.txt" || a.SHA256 != hash("B") || a.Signature == "" {
			t.Errorf("%s engine: got %+v, %v", name, a, err)
		}
		for _, path := range []string{"", "none", "evil", "../state/signing.key", "/etc/passwd", "sub"} {
			if a, err := who.ArtifactContent(t.Context(), sandboxmcp.Caller{Namespace: "a"}, res.RequestID, path); sandboxmcp.CodeOf(err) != sandboxmcp.CodeNotFound {
				t.Errorf("%s engine: %q came to %+v, %v; want not_found", name, path, a, err)
			}
		}
		for what, ask := range map[string]func(sandboxmcp.Namespace, sandboxmcp.RequestID) error{
			"Lookup": func(ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error {
				_, err := who.Lookup(t.Context(), sandboxmcp.Caller{Namespace: ns}, sandboxmcp.Lookup{RequestID: id})
				return err
			},
			"Output": func(ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error {
				_, err := who.Output(t.Context(), sandboxmcp.Caller{Namespace: ns}, id, "stdout")
				return err
			},
			"ArtifactContent": func(ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error {
				_, err := who.ArtifactContent(t.Context(), sandboxmcp.Caller{Namespace: ns}, id, "a.txt")
				return err
			},
			"Cancel": func(ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error {
				return who.Cancel(t.Context(), sandboxmcp.Caller{Namespace: ns}, id)
			},
		} {
			for _, q := range []struct {
				ns sandboxmcp.Namespace
				id sandboxmcp.RequestID
			}{{"b", res.RequestID}, {"", res.RequestID}, {"a", "00000000-0000-4000-8000-000000000000"}, {"a", "a/b"}, {"a", ""}} {
				if err := ask(q.ns, q.id); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
					t.Errorf("%s engine: %s of %+v: got %v, want request_not_found", name, what, q, err)
				}
			}
		}
		_, err = who.Output(t.Context(), sandboxmcp.Caller{Namespace: "a"}, res.RequestID, "stdin")
		wantCode(t, err, sandboxmcp.CodeInvalidArgument)
	}
}

// TestSweep: records that are too old are dropped with their files, and the audit record says
// so. The audit record itself stays.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var ahead atomic.Int64 // how far the clock is
	ahead.Store(int64(-48 * time.Hour))
	now := func(c *engine.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	f := &fake{files: map[string]string{"a.txt": "A", "b.txt": "B"}}
	e := open(t, f, at(dir), now)
	old := execute(t, e, shell("old"))
	ahead.Store(0)
	f.files = map[string]string{"b.txt": "B"}
	fresh := execute(t, e, shell("fresh"))
	blobs := func() (n int) {
		_ = filepath.WalkDir(filepath.Join(dir, "blobs"), func(_ string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				n++
			}
			return nil
		})
		return n
	}
	if n := blobs(); n != 2 {
		t.Errorf("%d blobs are kept, want A and B", n)
	}
	past := time.Now().Add(-time.Hour) // a young blob would be spared
	_ = filepath.WalkDir(filepath.Join(dir, "blobs"), func(p string, _ os.DirEntry, _ error) error { return os.Chtimes(p, past, past) })
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, &fake{}, at(dir), now)
	_, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: old.RequestID})
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	if got := lookup(t, e, sandboxmcp.Lookup{RequestID: fresh.RequestID, Content: true}); len(got.Artifacts) != 1 || string(got.Artifacts[0].ContentB64) != "B" {
		t.Errorf("what is not old is kept as %+v", got.Artifacts)
	}
	if n := blobs(); n != 1 {
		t.Errorf("%d blobs are kept, want B, which is still needed", n)
	}
	var dropped []sandboxmcp.AuditEntry
	list := rows(t, dir, "default")
	for _, r := range list {
		if r.Action == "artifact_dropped" {
			dropped = append(dropped, r)
		}
	}
	if len(list) != 7 || len(dropped) != 1 || dropped[0].RequestID != old.RequestID || dropped[0].Detail != "2 files" {
		t.Errorf("audit: got %d entries, dropped %+v; want 7, and one that names 2 files", len(list), dropped)
	}
}

// TestServerRows: a server's start and stop are in the record, a command's are not.
func TestServerRows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for _, server := range []bool{true, false} {
		e := open(t, &fake{}, at(dir), func(c *engine.Config) { c.Server = server })
		execute(t, e, shell("x"))
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, r := range rows(t, dir, "default") {
		got = append(got, r.Action)
	}
	if diff := cmp.Diff([]string{"server_start", "execute", "execute", "server_stop", "execute", "execute"}, got); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestStats: the figures count executions by status, their latency, and the memory of the
// process.
func TestStats(t *testing.T) {
	codes := map[string]backend.Exit{"ok": {}, "bad": {Code: 1}, "sig": {Signal: 15}}
	f := &fake{}
	f.program = func(r *fakeRun) backend.Exit {
		time.Sleep(2 * time.Millisecond) // the latency that the test expects to be counted
		return codes[r.Code()]
	}
	e := open(t, f)
	if s := stats(e); s.LatencyMS != (sandboxmcp.Latency{}) || len(s.Executions) != len(sandboxmcp.Statuses()) {
		t.Errorf("before anything ran: got %+v, want no latency and every status", s)
	}
	for _, code := range []string{"ok", "ok", "ok", "bad", "bad", "sig"} {
		execute(t, e, shell(code))
	}
	_, _ = e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{})
	s := stats(e)
	if s.Executions["completed"] != 3 || s.Executions["failed"] != 2 || s.Executions["signalled"] != 1 || s.Executions["timed_out"] != 0 {
		t.Errorf("got executions %v", s.Executions)
	}
	if s.Queue != (sandboxmcp.QueueStats{MaxConcurrent: 4, TotalProcessed: 6}) {
		t.Errorf("got queue %+v", s.Queue)
	}
	if s.LatencyMS.P50 < 2 || s.LatencyMS.P99 < s.LatencyMS.P50 || s.LatencyMS.P99 > 5000 {
		t.Errorf("got latency %+v, want at least the 2 ms that a program took", s.LatencyMS)
	}
	if s.Record == nil || !s.Record.Signed {
		t.Errorf("got %+v of the record, want that it is signed", s.Record)
	}
	if s.Resources.RAMMB < 1 || s.Pool == nil {
		t.Errorf("got resources %+v, pool %v", s.Resources, s.Pool)
	}
}

// TestCloseLeavesNothing: after Close no goroutine and no descriptor is left, whatever
// happened before.
func TestCloseLeavesNothing(t *testing.T) {
	before, now := openFiles(), goleak.IgnoreCurrent()
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{files: map[string]string{"a": "A"}}
	f.program = func(r *fakeRun) backend.Exit {
		if r.Code() == "hang" {
			return r.Hang()
		}
		return backend.Exit{}
	}
	e := open(t, f, at(dir))
	res := execute(t, e, sandboxmcp.Request{Code: "x"})
	start(t, e, "", "hang")
	_ = lookup(t, e, sandboxmcp.Lookup{RequestID: res.RequestID, Content: true})
	f.mu.Lock()
	f.onWalls = nil
	f.mu.Unlock()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := engine.New(t.Context(), engine.Config{StateDir: filepath.Join(dir, "swept", "x"), Backends: []backend.Backend{&fake{}}})
	wantCode(t, err, sandboxmcp.CodeBackendUnavailable)
	if after := openFiles(); after > before { // what an earlier test has left may be closed meanwhile
		t.Errorf("descriptors: got %d, want at most %d as before", after, before)
	}
	if err := goleak.Find(now); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*-wal")); len(left) != 0 {
		t.Errorf("%v is left, want a database that was closed", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "sandboxmcp.db")); errors.Is(err, os.ErrNotExist) {
		t.Error("the record: got no file, want it kept")
	}
}

// openFiles counts this process's descriptors; 0 where that cannot be seen.
func openFiles() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

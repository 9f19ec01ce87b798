package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // a second, unruly user of the database

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// searchPath holds interpreters of every language that are none: a fake backend
// does not start them. It is made before any test runs, because a script that
// is written while another test forks cannot be started.
var searchPath string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	searchPath = filepath.Join(dir, "bin")
	binary := "\x7fELF not really"
	shim := "#!/bin/sh\nprintf '\\036sandboxmcp {\"executable\":\"%s\",\"version\":\"3.12.1\",\"prefixes\":[]}\\n' '" + dir + "/real/"
	for name, text := range map[string]string{
		"real/python3.12": binary, "real/node": binary, "bin/bash": binary,
		"bin/python3": shim + "python3.12'\n", "bin/node": shim + "node'\n",
	} {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o755)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := skipExamples(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left behind:", err)
		code = 1
	}
	return code
}

// open opens an engine over the fake, in a state directory of its own unless
// one is named, and closes it with the test.
func open(t *testing.T, f *fake, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	cfg := engine.Config{
		StateDir: filepath.Join(t.TempDir(), "state"), Backends: []backend.Backend{f},
		Actor: "tester", Version: "1.2.3",
	}
	for _, c := range change {
		c(&cfg)
	}
	if storetest.Postgres() && cfg.SQLitePath == "" && cfg.Postgres == "" {
		cfg.Postgres = storetest.URL(cfg.StateDir)
	}
	e, err := engine.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// at puts the state into dir.
func at(dir string) func(*engine.Config) { return func(c *engine.Config) { c.StateDir = dir } }

// execute runs a request that has to come to a result.
func execute(t *testing.T, e *engine.Engine, r sandboxmcp.Request, who ...sandboxmcp.Caller) sandboxmcp.Result {
	t.Helper()
	res, err := e.Execute(t.Context(), callerOf(who), r)
	if err != nil {
		t.Fatalf("Execute: got %v, want a result", err)
	}
	return res
}

// callerOf returns the caller that a test names, or the zero one.
func callerOf(who []sandboxmcp.Caller) sandboxmcp.Caller {
	if len(who) == 0 {
		return sandboxmcp.Caller{}
	}
	return who[0]
}

// in namespace ns.
func of(ns sandboxmcp.Namespace) sandboxmcp.Caller { return sandboxmcp.Caller{Namespace: ns} }

// everyone lists what all namespaces have.
func everyone() sandboxmcp.Caller { return of(sandboxmcp.EveryNamespace) }

// stats returns what the engine has counted.
func stats(e *engine.Engine) sandboxmcp.Stats {
	s, _ := e.Stats(context.Background())
	return s
}

// recent returns the last events of a caller.
func recent(e *engine.Engine, c sandboxmcp.Caller) []sandboxmcp.Event {
	all, _ := e.Events(context.Background(), c)
	return all
}

// languages returns the runtimes of this machine.
func languages(t *testing.T, e *engine.Engine) []sandboxmcp.Runtime {
	t.Helper()
	r, err := e.Runtimes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Runtimes
}

// shell is a request that the fake does not look into.
func shell(code string) sandboxmcp.Request {
	return sandboxmcp.Request{Code: code, Language: sandboxmcp.Shell}
}

// wantCode fails unless err is an *Error of the code.
func wantCode(t *testing.T, err error, want sandboxmcp.Code) {
	t.Helper()
	if got := sandboxmcp.CodeOf(err); got != want {
		t.Fatalf("got error %v with the code %q, want %q", err, got, want)
	}
}

// asCode is wantCode, and returns the error.
func asCode(t *testing.T, err error, want sandboxmcp.Code) sandboxmcp.Error {
	t.Helper()
	wantCode(t, err, want)
	return *sandboxmcp.AsError(err)
}

// eventually is [testkit.Until].
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	testkit.Until(t, what, is)
}

// timeUp returns a channel that is ready after d.
func timeUp(t *testing.T, d time.Duration) <-chan time.Time {
	t.Helper()
	timer := time.NewTimer(d)
	t.Cleanup(func() { timer.Stop() })
	return timer.C
}

// rows reads the audit of a namespace, oldest first, as another process would.
func rows(t *testing.T, dir string, ns sandboxmcp.Namespace) []sandboxmcp.AuditEntry {
	t.Helper()
	signer := func() (audit.Signer, error) { return sign.Read(dir) }
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir, Notes: store.Makers(audit.Notes(signer), artifact.Notes()), NotesKey: audit.NotesKey(signer)}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := audit.List(t.Context(), s.DB(), ns, sandboxmcp.AuditQuery{Limit: audit.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	list := page.Entries
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// direct lets the engine write each record to the database before it goes on.
func direct(c *engine.Config) { c.Synchronous = store.SynchronousFull }

// database opens the database of a state directory behind the engine's back, after it has all
// records.
func database(t *testing.T, dir string) *sql.DB {
	t.Helper()
	rows(t, dir, "default")
	if storetest.Postgres() { // for reading only; see do
		v, err := store.Look(t.Context(), storetest.On(store.Config{Dir: dir}))
		if err != nil || v == nil {
			t.Fatal(v, err)
		}
		t.Cleanup(func() { _ = v.Close() })
		return v.DB()
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "sandboxmcp.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// count asks for one number.
func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func do(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	storetest.SQLite(t)
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// background runs fn in a goroutine; the returned function waits for its end.
func background[T any](t *testing.T, fn func() (T, error)) (wait func() (T, error)) {
	t.Helper()
	var v T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = fn()
	}()
	return func() (T, error) {
		t.Helper()
		select {
		case <-done:
		case <-timeUp(t, 20*time.Second):
			t.Fatal("got no end within 20 s, want one")
		}
		return v, err
	}
}

// lines collects what programs say in order.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

func (l *lines) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.all...)
}

func executeIn(ctx context.Context, t *testing.T, e *engine.Engine, r sandboxmcp.Request, who ...sandboxmcp.Caller) (wait func() (sandboxmcp.Result, error)) {
	t.Helper()
	return background(t, func() (sandboxmcp.Result, error) { return e.Execute(ctx, callerOf(who), r) })
}

package limits_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// open opens a state directory as a process of its own would.
func open(t *testing.T, cfg store.Config) (*limits.Table, *store.Store) {
	t.Helper()
	s, err := store.Open(t.Context(), storetest.On(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return limits.New(s, func() time.Time { return time.Unix(1, 0) }), s
}

func kept(t *testing.T, l *limits.Table, ns sandboxmcp.Namespace) sandboxmcp.Limits {
	t.Helper()
	k, err := l.Kept(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func nothing() store.Op { return func(context.Context, *sql.Tx) error { return nil } }

func set(t *testing.T, l *limits.Table, ns sandboxmcp.Namespace, to sandboxmcp.Limits) {
	t.Helper()
	err := l.Change(t.Context(), ns, func(was sandboxmcp.Limits) (sandboxmcp.Limits, error) { return to.Over(was), nil }, nothing)
	if err != nil {
		t.Fatal(err)
	}
}

// A change by one process holds for the next question of every other one, each time, for its
// namespace alone, and for processes that start later.
func TestAChangeHoldsInEveryProcess(t *testing.T) {
	dir := t.TempDir()
	a, _ := open(t, store.Config{Dir: dir})
	b, _ := open(t, store.Config{Dir: dir})
	if got := kept(t, b, "one"); got != (sandboxmcp.Limits{}) {
		t.Errorf("before: got %+v", got)
	}
	for n := 1; n <= 50; n++ {
		set(t, a, "one", sandboxmcp.Limits{MaxRAMMB: n})
		if got := kept(t, b, "one"); got != (sandboxmcp.Limits{MaxRAMMB: n}) {
			t.Fatalf("after change %d: got %+v", n, got)
		}
		set(t, b, "two", sandboxmcp.Limits{MaxProcesses: n})
		if got := kept(t, a, "two"); got != (sandboxmcp.Limits{MaxProcesses: n}) {
			t.Fatalf("after change %d the other way: got %+v", n, got)
		}
	}
	if got := kept(t, a, "three"); got != (sandboxmcp.Limits{}) {
		t.Errorf("another namespace: got %+v", got)
	}
	c, _ := open(t, store.Config{Dir: dir})
	if got := kept(t, c, "one"); got != (sandboxmcp.Limits{MaxRAMMB: 50}) {
		t.Errorf("later: got %+v", got)
	}
	if err := c.Change(t.Context(), "one", func(sandboxmcp.Limits) (sandboxmcp.Limits, error) { return sandboxmcp.Limits{}, nil }, nothing); err != nil {
		t.Fatal(err)
	}
	if got := kept(t, a, "one"); got != (sandboxmcp.Limits{}) {
		t.Errorf("reset: got %+v", got)
	}
}

// The cache answers while nothing changes: no question reads the database.
func TestLimitsAreReadOnceForEachChange(t *testing.T) {
	storetest.SQLite(t)
	a, s := open(t, store.Config{Dir: t.TempDir()})
	set(t, a, "one", sandboxmcp.Limits{MaxRAMMB: 7})
	kept(t, a, "one")
	if err := s.DB().Close(); err != nil { // from now on a read fails
		t.Fatal(err)
	}
	if got := kept(t, a, "one"); got.MaxRAMMB != 7 {
		t.Errorf("got %+v", got)
	}
	if got := kept(t, a, "two"); got != (sandboxmcp.Limits{}) {
		t.Errorf("got %+v", got)
	}
}

// Changes of different limits at the same time are all kept.
func TestChangesAreNotLost(t *testing.T) {
	dir := t.TempDir()
	a, _ := open(t, store.Config{Dir: dir})
	b, _ := open(t, store.Config{Dir: dir})
	var wg sync.WaitGroup
	for n := 1; n <= 20; n++ {
		wg.Go(func() { set(t, a, "one", sandboxmcp.Limits{MaxRAMMB: n}) })
		wg.Go(func() { set(t, b, "one", sandboxmcp.Limits{MaxProcesses: n}) })
	}
	wg.Wait()
	x, y := kept(t, a, "one"), kept(t, b, "one")
	if x != y || x.MaxRAMMB == 0 || x.MaxProcesses == 0 {
		t.Errorf("got %+v and %+v", x, y)
	}
}

// What cannot be recorded, and what is refused, is not changed.
func TestWhatIsNotRecordedIsNotChanged(t *testing.T) {
	a, _ := open(t, store.Config{Dir: t.TempDir()})
	set(t, a, "one", sandboxmcp.Limits{MaxRAMMB: 7})
	no := errors.New("no")
	change := func(sandboxmcp.Limits) (sandboxmcp.Limits, error) { return sandboxmcp.Limits{MaxRAMMB: 8}, nil }
	err := a.Change(t.Context(), "one", change, func() store.Op { return func(context.Context, *sql.Tx) error { return no } })
	if !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	err = a.Change(t.Context(), "one", func(sandboxmcp.Limits) (sandboxmcp.Limits, error) { return sandboxmcp.Limits{MaxRAMMB: 8}, no }, nothing)
	if !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	asked := false
	err = a.Change(t.Context(), "one", func(was sandboxmcp.Limits) (sandboxmcp.Limits, error) { return was, nil }, func() store.Op { asked = true; return nothing() })
	if err != nil || asked {
		t.Errorf("a call that changes nothing: got %v, recorded %v; want nil and no record", err, asked)
	}
	if got := kept(t, a, "one"); got.MaxRAMMB != 7 {
		t.Errorf("got %+v", got)
	}
}

// A change whose process dies before its commit is not made. It hides no later change,
// although it was announced.
func TestAnUnfinishedChange(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	a, _ := open(t, store.Config{Dir: dir})
	b, _ := open(t, store.Config{Dir: dir})
	set(t, a, "one", sandboxmcp.Limits{MaxRAMMB: 7})
	file := filepath.Join(dir, "sandboxmcp.db-limits")
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.Truncate(file, st.Size()+1); err != nil {
		t.Fatal(err)
	}
	for n := 8; n < 11; n++ {
		if got := kept(t, b, "one"); got.MaxRAMMB != n-1 {
			t.Errorf("got %+v, want MaxRAMMB %d", got, n-1)
		}
		set(t, a, "one", sandboxmcp.Limits{MaxRAMMB: n})
		if got := kept(t, b, "one"); got.MaxRAMMB != n {
			t.Errorf("got %+v, want MaxRAMMB %d", got, n)
		}
	}
}

func TestInMemory(t *testing.T) {
	a, _ := open(t, store.Config{Dir: t.TempDir(), SQLitePath: store.MemoryPath})
	if got := kept(t, a, "one"); got != (sandboxmcp.Limits{}) {
		t.Errorf("got %+v", got)
	}
	set(t, a, "one", sandboxmcp.Limits{MaxRAMMB: 7})
	if got := kept(t, a, "one"); got.MaxRAMMB != 7 {
		t.Errorf("got %+v", got)
	}
}

// A mark that cannot be read is no reason to run without the limits.
func TestAMarkThatCannotBeRead(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	a, _ := open(t, store.Config{Dir: dir})
	if err := os.Mkdir(filepath.Join(dir, "sandboxmcp.db-limits"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Kept(t.Context(), "one"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("got %v", err)
	}
	err := a.Change(t.Context(), "one", func(sandboxmcp.Limits) (sandboxmcp.Limits, error) { return sandboxmcp.Limits{MaxRAMMB: 8}, nil }, nothing)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("a change: got %v", err)
	}
}

func BenchmarkKept(b *testing.B) {
	for _, name := range []string{"never set", "set"} {
		b.Run(name, func(b *testing.B) {
			s, err := store.Open(b.Context(), storetest.On(store.Config{Dir: b.TempDir()}))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			l := limits.New(s, nil)
			if name == "set" {
				if err = l.Change(b.Context(), "one", func(sandboxmcp.Limits) (sandboxmcp.Limits, error) { return sandboxmcp.Limits{MaxRAMMB: 8}, nil }, nothing); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := l.Kept(b.Context(), "one"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestABadRowFailsItsNamespaceAlone: limits that cannot be decoded, or are longer than servers store them, fail the requests of
// their namespace.
func TestABadRowFailsItsNamespaceAlone(t *testing.T) {
	for name, kept := range map[string]string{"no JSON": `'{'`, "too long": `kept || replace('` + strings.Repeat("x", 1<<10) + `', 'x', '` + strings.Repeat(" ", 1<<6) + `')`} {
		t.Run(name, func(t *testing.T) { badRow(t, kept) })
	}
}

func badRow(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	a, _ := open(t, store.Config{Dir: dir})
	set(t, a, "one", sandboxmcp.Limits{MaxRAMMB: 7})
	set(t, a, "two", sandboxmcp.Limits{MaxRAMMB: 8})
	storetest.Tamper(t, dir, `UPDATE limits SET kept = `+text+` WHERE namespace = 'one'`)
	b, _ := open(t, store.Config{Dir: dir})
	if _, err := b.Kept(t.Context(), "one"); err == nil {
		t.Error("the namespace of the row: got no error, want one")
	}
	if got := kept(t, b, "two"); got.MaxRAMMB != 8 {
		t.Errorf("another namespace: got %+v, want 8 MB", got)
	}
	if got := kept(t, b, "three"); got != (sandboxmcp.Limits{}) {
		t.Errorf("a namespace without limits: got %+v, want none", got)
	}
}

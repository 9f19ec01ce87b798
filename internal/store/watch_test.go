package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

func version(t *testing.T, w *store.Watch) int64 {
	t.Helper()
	v, err := w.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func change(t *testing.T, w *store.Watch, ops ...store.Op) {
	t.Helper()
	if err := w.Update(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
}

func TestEveryProcessSeesAVersionOnceItIsCommitted(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, store.Config{Dir: dir}).Watch("topic"), open(t, store.Config{Dir: dir}).Watch("topic")
	other := open(t, store.Config{Dir: dir}).Watch("other")
	last := version(t, b)
	if last != 0 {
		t.Errorf("before any change: got version %d, want 0", last)
	}
	for n := range 20 {
		w, seen := a, b
		if n%2 == 1 {
			w, seen = b, a
		}
		change(t, w)
		now := version(t, seen)
		if now <= last || version(t, w) != now {
			t.Fatalf("change %d: got versions %d and %d after %d, want one that is higher", n, now, version(t, w), last)
		}
		last = now
	}
	if got := version(t, other); got != 0 {
		t.Errorf("another topic: got version %d, want 0", got)
	}
	if got := version(t, open(t, store.Config{Dir: dir}).Watch("topic")); got != last {
		t.Errorf("a later process: got version %d, want %d", got, last)
	}
}

func TestAFailedChangeHasNoVersion(t *testing.T) {
	for _, path := range []string{"", store.MemoryPath} {
		w := open(t, store.Config{Dir: t.TempDir(), SQLitePath: path}).Watch("topic")
		change(t, w)
		before, no := version(t, w), errors.New("no")
		if err := w.Update(t.Context(), func(context.Context, *sql.Tx) error { return no }); !errors.Is(err, no) {
			t.Errorf("path %q: got %v, want %v", path, err, no)
		}
		if got := version(t, w); path == "" && got != before {
			t.Errorf("got version %d, want %d", got, before)
		}
	}
}

// A change that was announced and not committed, a file that was removed, and one that
// was put back from a copy do not hide a change.
func TestAFileThatDoesNotFitIsMended(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	a, b := open(t, store.Config{Dir: dir}).Watch("topic"), open(t, store.Config{Dir: dir}).Watch("topic")
	file := filepath.Join(dir, "sandboxmcp.db-topic")
	change(t, a)
	for name, spoil := range map[string]func(size int64) error{
		"ahead":   func(size int64) error { return os.Truncate(file, size+1) },
		"behind":  func(size int64) error { return os.Truncate(file, size-1) },
		"removed": func(int64) error { return os.Remove(file) },
	} {
		before := version(t, b)
		st, err := os.Stat(file)
		if err == nil {
			err = spoil(st.Size())
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := version(t, b); got != before {
			t.Errorf("%s: got version %d, want %d", name, got, before)
		}
		change(t, a)
		if got := version(t, b); got <= before {
			t.Errorf("%s, after a change: got version %d, want more than %d", name, got, before)
		}
	}
}

// A process that opens a database which was restored without its signal files sees the
// changes.
func TestADatabaseWithoutItsFiles(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	change(t, open(t, store.Config{Dir: dir}).Watch("topic"))
	if err := os.Remove(filepath.Join(dir, "sandboxmcp.db-topic")); err != nil {
		t.Fatal(err)
	}
	if got := version(t, open(t, store.Config{Dir: dir}).Watch("topic")); got == 0 {
		t.Error("got version 0, want the change")
	}
}

func TestAFileThatCannotBeAWatch(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	if err := os.Mkdir(filepath.Join(dir, "sandboxmcp.db-topic"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Watch("topic").Version(t.Context()); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("Version: got %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
	}
	err := s.Watch("topic").Update(t.Context(), addServer("x"))
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable || countServers(t, s) != 0 {
		t.Errorf("Update: got %v and %d rows, want %s and none", err, countServers(t, s), sandboxmcp.CodeBackendUnavailable)
	}
}

// Processes that open one database by different paths see each other's changes.
func TestWatchesOfLinkedDatabases(t *testing.T) {
	storetest.SQLite(t)
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link.db")
	a := open(t, store.Config{Dir: dir})
	if err := os.Symlink(a.Path(), link); err != nil {
		t.Fatal(err)
	}
	b := open(t, store.Config{Dir: t.TempDir(), SQLitePath: link})
	change(t, a.Watch("topic"))
	if got := version(t, b.Watch("topic")); got == 0 {
		t.Error("got version 0, want the change")
	}
}

func TestWaitReturnsAfterAChange(t *testing.T) {
	dir := t.TempDir()
	file, memory := open(t, store.Config{Dir: dir}), open(t, store.Config{Dir: t.TempDir(), SQLitePath: store.MemoryPath})
	for name, tt := range map[string]struct {
		w      *store.Watch
		change func() error
	}{
		"its own process": {file.Watch("topic"), func() error { return file.Watch("topic").Update(t.Context()) }},
		"in memory":       {memory.Watch("topic"), func() error { return memory.Watch("topic").Update(t.Context()) }},
		"another process": {file.Watch("topic"), func() error {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s change 1", childEnv, dir))
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}},
	} {
		since, done := version(t, tt.w), make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		go func() { done <- tt.w.Wait(ctx, since) }()
		if err := tt.change(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: got %v, want nil", name, err)
		}
		if err := tt.w.Wait(ctx, since); err != nil { // a change that is past
			t.Errorf("%s, again: got %v, want nil", name, err)
		}
		cancel()
		if err := tt.w.Wait(ctx, version(t, tt.w)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, after the context: got %v, want its error", name, err)
		}
	}
}

// A cache reads once for each change, and never returns a value of before a change that was
// announced.
func TestCachedIsNeverOld(t *testing.T) {
	for _, path := range []string{"", store.MemoryPath} {
		dir := t.TempDir()
		a := open(t, store.Config{Dir: dir, SQLitePath: path})
		b := a
		if path == "" {
			b = open(t, store.Config{Dir: dir})
		}
		var reads atomic.Int64
		count := store.NewCached(b.Watch("topic"), func(ctx context.Context) (n int, err error) {
			reads.Add(1)
			err = b.DB().QueryRowContext(ctx, `SELECT count(*) FROM servers`).Scan(&n)
			return n, err
		})
		if n, err := count.Get(t.Context()); n != 0 || err != nil || reads.Load() != 0 {
			t.Errorf("path %q, before any change: got %d, %v after %d reads, want 0 after none", path, n, err, reads.Load())
		}
		var made atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for j := range 25 {
					if err := a.Watch("topic").Update(t.Context(), addServer(strconv.Itoa(100*i+j))); err != nil {
						t.Error(err)
						return
					}
					least := made.Add(1)
					if n, err := count.Get(t.Context()); int64(n) < least || err != nil {
						t.Errorf("path %q: got %d, %v, want at least %d", path, n, err, least)
					}
				}
			})
		}
		wg.Wait()
		before := reads.Load()
		for range 10 {
			if n, err := count.Get(t.Context()); n != 100 || err != nil {
				t.Errorf("path %q: got %d, %v, want 100", path, n, err)
			}
		}
		// With PostgreSQL, values are also read again after notifications.
		if after := reads.Load(); !storetest.Postgres() && (after > before+1 || after > 101) {
			t.Errorf("path %q: got %d reads, and %d when nothing changed, want at most 101 and 1", path, before, after-before)
		}
	}
}

// A state directory of the release before has other files. What was changed there is
// seen, and its topics cost no more than others.
func TestSignalsOfTheReleaseBefore(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	db, _ := release(t, dir, 9)
	for _, q := range []string{
		`INSERT INTO limits VALUES ('ns', 't', '{"max_ram_mb": 7}')`,
		`INSERT INTO grants VALUES ('id', 'ns', 's', 'd', 'always', '', '', '', 'a', 't', '', '')`,
	} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(dir, "gate"), "\n\n")
	touch(t, filepath.Join(dir, "sandboxmcp.db-limits"), "LONGWORDTHATWASNEVERTHERE2")
	s := open(t, store.Config{Dir: dir})
	for topic, table := range map[string]string{"gate": "grants", "limits": "limits"} {
		count := store.NewCached(s.Watch(topic), func(ctx context.Context) (n int, err error) {
			err = s.DB().QueryRowContext(ctx, `SELECT count(*) FROM `+table).Scan(&n)
			return n, err
		})
		if n, err := count.Get(t.Context()); n != 1 || err != nil {
			t.Errorf("%s: got %d rows, %v, want 1", topic, n, err)
		}
		st, err := os.Stat(filepath.Join(dir, "sandboxmcp.db-"+topic))
		if err != nil {
			t.Fatal(err)
		}
		if v := version(t, s.Watch(topic)); v != st.Size() {
			t.Errorf("%s: got version %d and a file of %d bytes, want the same", topic, v, st.Size())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "gate")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old file: got %v, want it removed", err)
	}
}

// What a look costs while nothing changes.
func BenchmarkVersion(b *testing.B) {
	w := open(b, store.Config{Dir: b.TempDir()}).Watch("topic")
	look := func(b *testing.B) {
		b.Helper()
		for b.Loop() {
			if _, err := w.Version(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("never changed", look)
	if err := w.Update(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Run("changed", look)
}

// TestAVersionThatIsTakenBackHidesNoChange: a value is read again by each call if a trigger takes back the version of its topic. It
// is not, if only the file of the topic was lost, such as in a copy of the database.
func TestAVersionThatIsTakenBackHidesNoChange(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	w := s.Watch("topic")
	reads := 0
	c := store.NewCached(w, func(context.Context) (int, error) { reads++; return reads, nil })
	want := func(n int, when string) {
		t.Helper()
		if _, err := c.Get(t.Context()); err != nil || reads != n {
			t.Errorf("%s: got %d readings and %v, want %d", when, reads, err, n)
		}
	}
	change(t, w)
	want(1, "at first")
	want(1, "again")
	if err := os.Remove(filepath.Join(dir, "sandboxmcp.db-topic")); err != nil {
		t.Fatal(err)
	}
	want(1, "the file is lost")
	change(t, w)
	want(2, "a change")
	storetest.Tamper(t, dir, `CREATE TRIGGER back AFTER UPDATE ON signals BEGIN UPDATE signals SET version = OLD.version WHERE topic = OLD.topic; END`)
	change(t, w)
	want(3, "a change that is taken back")
	want(4, "again")
	storetest.Tamper(t, dir, `DROP TRIGGER back`)
	change(t, w)
	want(5, "a change that is not")
	want(5, "again")
	storetest.Tamper(t, dir, `UPDATE signals SET version = 1000000`)
	if err := os.Remove(filepath.Join(dir, "sandboxmcp.db-topic")); err != nil {
		t.Fatal(err)
	}
	want(6, "a version that was raised")
	storetest.Tamper(t, dir, `UPDATE signals SET version = 1`)
	change(t, w)
	want(7, "a change after it was lowered")
}

// TestCatchUp: a value is no longer read by each use although the file of its topic was ahead of the row, such as after a process was
// killed before it could commit a change.
func TestCatchUp(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	reads := 0
	c := store.NewCached(s.Watch("topic"), func(context.Context) (int, error) { reads++; return reads, nil })
	want := func(n int, when string) {
		t.Helper()
		for range 2 {
			if _, err := c.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if reads != n {
			t.Errorf("%s: got %d readings, want %d", when, reads, n)
		}
	}
	for n, version := range []int64{10, 20} { // the topic was never changed before, and it was
		if err := os.WriteFile(filepath.Join(dir, "sandboxmcp.db-topic"), make([]byte, version), 0o600); err != nil {
			t.Fatal(err)
		}
		want(3*n+2, "before")
		for range 2 {
			if err := s.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want(3*n+3, "after")
	}
}

package store_test

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

	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// While a process waits to carry out a file, another one carries it out and removes it. Its notes
// are there once.
func TestNotesThatOthersHaveDoneMeanwhile(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	end(t, keeper(t, dir, 3, 3))
	first, second := open(t, store.Config{Dir: dir, Notes: makers()}), open(t, store.Config{Dir: dir, Notes: makers()})
	if countServers(t, first) > 0 {
		t.Skip("the process was faster")
	}
	name := files(t, dir)[0]
	lease, err := first.TryLease(t.Context(), filepath.Join("sandboxmcp.db-notes", name))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	settle := func() { done <- second.Settle(t.Context()) }
	err = first.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		go settle()
		untilWaiting(t, second, 1)
		for _, id := range []string{"child0", "child1", "child2"} {
			if err := addServer(id)(ctx, tx); err != nil {
				return err
			}
		}
		return lease.Discard()
	})
	if err = errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if n := countServers(t, first); n != 3 || len(files(t, dir)) > 0 {
		t.Errorf("got %d rows and the files %v, want 3 and none", n, files(t, dir))
	}
}

// An Update follows what its caller has kept before, also if it joins while a transaction runs.
func TestUpdateFollowsWhatWasKept(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	entered, leave := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(leave) })
	t.Cleanup(goOn)
	slow := note("slow")
	slow.Op = func(context.Context, *sql.Tx) error {
		close(entered)
		<-leave
		return nil
	}
	if err := s.Keep(t.Context(), slow); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { done <- s.Update(t.Context()) }()
	<-entered
	keep(t, s, "a")
	seen := 0
	go func() {
		done <- s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM servers`).Scan(&seen)
		})
	}()
	// On a busy machine the timer of what was kept waits, too.
	testkit.UntilEqual(t, "an update waits", true, func() bool { return store.Waiting(s) > 0 })
	goOn()
	if err := errors.Join(<-done, <-done); err != nil || seen != 1 {
		t.Errorf("the Update: got %d rows and %v, want the one that was kept before", seen, err)
	}
}

// Rows about files that are gone are deleted.
func TestRowsAboutNotesDoNotAddUp(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	for _, id := range []string{"a", "b", "c"} {
		s, err := store.Open(t.Context(), store.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		keep(t, s, id)
		if err = s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := countNoteRows(t, s); n != 1 {
			t.Errorf("got %d rows, want that of this process", n)
		}
		if err = s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Settle does not outlast its context while another process keeps the database locked.
func TestSettleEndsWithItsContext(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s, other := open(t, store.Config{Dir: dir}), open(t, store.Config{Dir: dir})
	release := hold(t, other)
	defer release()
	keep(t, s, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
}

// A file that cannot be read, or that another user has made, is named.
func TestNotesOfAnotherUser(t *testing.T) {
	storetest.SQLite(t)
	testkit.Root(t)
	dir := t.TempDir()
	end(t, keeper(t, dir, 1, 1))
	s := open(t, store.Config{Dir: dir, Notes: makers()})
	name := files(t, dir)[0]
	if err := os.Chown(filepath.Join(dir, "sandboxmcp.db-notes", name), 4321, 4321); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v, want an error that names %s", err, name)
	}
}

// Beside a database of another user no file is made, because that user could not read it.
func TestKeepInADatabaseOfAnotherUser(t *testing.T) {
	storetest.SQLite(t)
	testkit.Root(t)
	cfg := store.Config{Dir: t.TempDir(), SQLitePath: filepath.Join(t.TempDir(), "shared.db"), Notes: makers()}
	s, err := store.Open(t.Context(), cfg)
	if err == nil {
		err = errors.Join(s.Close(), os.Chown(cfg.SQLitePath, 4321, 4321))
	}
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	keep(t, s, "a")
	if n := countServers(t, s); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
	if _, err = os.Lstat(cfg.SQLitePath + "-notes"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want no directory with notes", err)
	}
}

// A long read, such as that of `audit verify`, does not stop the reads that runs need.
func TestALongReadStopsNoOther(t *testing.T) {
	s := open(t, storetest.On(store.Config{Dir: t.TempDir()}))
	tx, err := s.DB().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var n int
	if err = s.DB().QueryRowContext(ctx, `SELECT 1`).Scan(&n); err != nil {
		t.Error(err)
	}
}

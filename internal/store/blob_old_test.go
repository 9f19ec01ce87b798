package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

const young = 10 * time.Minute

func putBlob(t *testing.T, s *store.Store, content string) (sum, path string) {
	t.Helper()
	sum, err := s.PutBlob(t.Context(), []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(s.Dir(), "blobs*", sum[:2], sum))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q: got files %v, %v; want one", content, found, err)
	}
	return sum, found[0]
}

// age makes a file look as if it had been there that long.
func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestOldBlobsAreDiscarded(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	old, path := putBlob(t, s, "old")
	age(t, path, time.Hour)
	touch(t, filepath.Join(filepath.Dir(path), "stray"), "x")
	age(t, filepath.Join(filepath.Dir(path), "stray"), time.Hour)
	fresh, _ := putBlob(t, s, "young")
	var listed []string
	for shard := range store.BlobShards {
		sums, err := s.OldBlobs(shard, young)
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, sums...)
	}
	if d := cmp.Diff([]string{old}, listed); d != "" {
		t.Error(d)
	}
	for _, sum := range []string{old, old, fresh} {
		if err := s.DiscardBlob(sum, young); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.ReadBlob(t.Context(), old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("discarded: got %v, want not exist", err)
	}
	if got := readBlob(t, s, fresh); got != "young" {
		t.Errorf("got %q, want the young blob", got)
	}
	if err := s.RemoveDiscarded(t.Context()); err != nil {
		t.Error(err)
	}
	if left := unfinished(t, s); len(left) != 0 {
		t.Errorf("%v is left, want the space back", left)
	}
}

// A blob that is put while it is being discarded is there afterwards.
func TestDiscardDoesNotTakeWhatIsPut(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	sum, path := putBlob(t, s, "content")
	for i := range 300 {
		age(t, path, time.Hour)
		discarded := make(chan error, 1)
		go func() { discarded <- s.DiscardBlob(sum, young) }()
		_, err := s.PutBlob(t.Context(), []byte("content"))
		if err = errors.Join(err, <-discarded); err != nil {
			t.Fatal(err)
		}
		if got := readBlob(t, s, sum); got != "content" {
			t.Fatalf("round %d: got %q", i, got)
		}
	}
}

func TestAbandonedBlobsAreRemoved(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	if err := s.RemoveDiscarded(t.Context()); err != nil { // nothing was ever put
		t.Error(err)
	}
	putBlob(t, s, "x")
	for name, by := range map[string]time.Duration{"old": 2 * time.Hour, "young": time.Minute} {
		path := filepath.Join(s.Dir(), "blobs", "tmp", name)
		touch(t, path, "x")
		age(t, path, by)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.RemoveDiscarded(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	if err := s.RemoveDiscarded(t.Context()); err != nil {
		t.Error(err)
	}
	if got := unfinished(t, s); len(got) != 1 || got[0].Name() != "young" {
		t.Errorf("got %v, want young alone", got)
	}
}

// What a database does not name may go, so each has blobs of its own.
func TestEachDatabaseHasItsBlobs(t *testing.T) {
	storetest.SQLite(t)
	dir, elsewhere := t.TempDir(), t.TempDir()
	usual := open(t, store.Config{Dir: dir})
	sum, path := putBlob(t, usual, "content")
	age(t, path, time.Hour)
	for name, sqlite := range map[string]string{"memory": store.MemoryPath, "other": filepath.Join(elsewhere, "other.db")} {
		s := open(t, store.Config{Dir: dir, SQLitePath: sqlite})
		if _, err := s.ReadBlob(t.Context(), sum); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want not exist", name, err)
		}
		if err := s.DiscardBlob(sum, young); err != nil {
			t.Error(err)
		}
	}
	if got := readBlob(t, usual, sum); got != "content" {
		t.Errorf("got %q", got)
	}
	// The same database by another name is the same.
	link := filepath.Join(elsewhere, "link.db")
	if err := os.Symlink(filepath.Join(dir, "sandboxmcp.db"), link); err != nil {
		t.Fatal(err)
	}
	if got := readBlob(t, open(t, store.Config{Dir: dir, SQLitePath: link}), sum); got != "content" {
		t.Errorf("by a link: got %q", got)
	}
}

func TestBlobsInMemoryGo(t *testing.T) {
	dir := t.TempDir()
	there := func() string {
		found, _ := filepath.Glob(filepath.Join(dir, "blobs-memory-*"))
		return strconv.Itoa(len(found))
	}
	s, err := store.Open(t.Context(), store.Config{Dir: dir, SQLitePath: store.MemoryPath})
	if err != nil {
		t.Fatal(err)
	}
	sum, path := putBlob(t, s, "content")
	held := filepath.Dir(filepath.Dir(path))
	age(t, held, 2*time.Hour)
	killed := filepath.Join(dir, "blobs-memory-KILLED")
	if err := os.MkdirAll(filepath.Join(killed, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	usual := open(t, store.Config{Dir: dir})
	for _, step := range []struct {
		age  time.Duration
		want string
	}{{time.Minute, "2"}, {2 * time.Hour, "1"}} {
		age(t, killed, step.age)
		if err := usual.RemoveDiscarded(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := there(); got != step.want {
			t.Errorf("%s old: %s directories are left, want %s", step.age, got, step.want)
		}
	}
	if got := readBlob(t, s, sum); got != "content" {
		t.Errorf("what is in use: got %q", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := there(); got != "0" {
		t.Errorf("%s directories are left after Close", got)
	}
	if _, err := s.PutBlob(t.Context(), []byte("late")); err == nil {
		t.Error("PutBlob after Close: got no error, want one")
	}
}

// Asking whether a stream's blob is named must not read every row.
func TestBlobNamesAreIndexed(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	for _, column := range []string{"stdout_blob", "stderr_blob"} {
		rows, err := s.DB().QueryContext(t.Context(), fmt.Sprintf(`EXPLAIN QUERY PLAN SELECT 1 FROM executions WHERE %s = ?`, column), "x")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var a, b, c any
			var plan string
			if err := rows.Scan(&a, &b, &c, &plan); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(plan, "executions_"+column) {
				t.Errorf("%s: got plan %s, want its index used", column, plan)
			}
		}
		if err := rows.Err(); err != nil {
			t.Error(err)
		}
	}
}

package store_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// servers returns two stores with directories of their own, which share a database and objects.
func servers(t *testing.T, far *storetest.Objects) (first, second *store.Store) {
	t.Helper()
	if !storetest.Postgres() {
		t.Skip("needs PostgreSQL")
	}
	dir := t.TempDir()
	url := storetest.URL(dir)
	var both []*store.Store
	for _, name := range []string{"1", "2"} {
		s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(dir, name), Postgres: url, Objects: far})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		both = append(both, s)
	}
	return both[0], both[1]
}

// forget removes the files of blobs in a state directory.
func forget(t *testing.T, s *store.Store) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir(), "blobs*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want one directory of blobs", found, err)
	}
	entries, err := os.ReadDir(found[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "tmp" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(found[0], e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBlobsOfAnotherServer(t *testing.T) {
	far := &storetest.Objects{}
	first, second := servers(t, far)
	for _, content := range []string{"", "hello", strings.Repeat("long ", 100_000)} {
		sum, err := first.PutBlob(t.Context(), []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		if got := readBlob(t, second, sum); got != content {
			t.Errorf("got %d bytes, want %d", len(got), len(content))
		}
		forget(t, first)
		if got := readBlob(t, first, sum); got != content {
			t.Errorf("without its own file: got %d bytes, want %d", len(got), len(content))
		}
		for _, left := range []string{"", strings.Repeat("\x00", len(content)), content + "more"} {
			if left == content {
				continue
			}
			if err := os.WriteFile(fileOf(t, first, sum), []byte(left), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := readBlob(t, first, sum); got != content {
				t.Errorf("with %d other bytes in its own file: got %d bytes, want %d", len(left), len(got), len(content))
			}
		}
	}
	if first.Elsewhere() {
		t.Error("Elsewhere: got true, want false with an object store")
	}
}

// A blob is in the object store before PutBlob returns, also if this server has had it before. A store
// that fails or does not answer is told as such.
func TestBlobsArePutIntoObjects(t *testing.T) {
	far := &storetest.Objects{}
	first, _ := servers(t, far)
	if _, err := first.PutBlob(t.Context(), []byte("content")); err != nil {
		t.Fatal(err)
	}
	name := far.Names()[0]
	far.Change(name, nil)
	if _, err := first.PutBlob(t.Context(), []byte("content")); err != nil {
		t.Fatal(err)
	}
	if got := far.Names(); len(got) != 1 || got[0] != name {
		t.Errorf("got %v, want %s again", got, name)
	}
	far.Fail(errors.New("out of order"))
	for _, content := range []string{"content", "another"} {
		_, err := first.PutBlob(t.Context(), []byte(content))
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("%s: got %v, want backend_unavailable with the reason", content, err)
		}
	}
	far.Fail(nil)
	far.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := first.PutBlob(ctx, []byte("content")); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("no answer: got %v, want backend_unavailable", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := first.PutBlob(ctx, []byte("content")); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller gives up: got %v, want canceled", err)
	}
}

// An Update that fails for the object store fails alone: others in its transaction are committed.
func TestObjectsFailNoOtherUpdate(t *testing.T) {
	far := &storetest.Objects{}
	first, _ := servers(t, far)
	far.Hang()
	held, done := make(chan struct{}), make(chan error, 3)
	go func() {
		done <- first.Update(t.Context(), func(context.Context, *sql.Tx) error { <-held; return nil })
	}()
	fails := func(ctx context.Context, _ *sql.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // it ends in the object store, not before in the database
		defer cancel()
		_, err := first.PutBlob(ctx, []byte("content"))
		return err
	}
	go func() {
		if err := first.Update(t.Context(), fails); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
			t.Errorf("got %v, want backend_unavailable", err)
		}
		done <- nil
	}()
	go func() { done <- first.Update(t.Context(), func(context.Context, *sql.Tx) error { return nil }) }()
	close(held)
	for range 3 {
		if err := <-done; err != nil {
			t.Errorf("an Update without blobs: got %v, want nil", err)
		}
	}
}

func TestChangedObjectIsRefused(t *testing.T) {
	far := &storetest.Objects{}
	first, second := servers(t, far)
	sum, err := first.PutBlob(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	far.Change(far.Names()[0], []byte("forgery"))
	if _, err := second.ReadBlob(t.Context(), sum); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("got %v, want backend_unavailable", err)
	}
	if n := unfinishedOf(t, second); n != 0 {
		t.Errorf("%d unfinished blobs are left, want none", n)
	}
}

// unfinishedOf counts unfinished blobs, wherever the blobs are.
func unfinishedOf(t *testing.T, s *store.Store) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir(), "blobs*", "tmp", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// A server removes its own files of blobs that no result has, and no object: another server may be about to
// use one.
func TestObjectsAreNotRemoved(t *testing.T) {
	far := &storetest.Objects{}
	first, second := servers(t, far)
	sum, err := first.PutBlob(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.DiscardBlob(sum, 0); err != nil {
		t.Fatal(err)
	}
	if first.BlobSize(sum) >= 0 || len(far.Names()) != 1 {
		t.Errorf("got size %d here and the objects %v, want the object alone", first.BlobSize(sum), far.Names())
	}
	if got := readBlob(t, second, sum); got != "content" {
		t.Errorf("got %q", got)
	}
	if _, err := second.ReadBlob(t.Context(), strings.Repeat("a", 64)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing one: got %v, want not exist", err)
	}
}

func TestObjectsNeedPostgreSQL(t *testing.T) {
	storetest.SQLite(t)
	_, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Objects: &storetest.Objects{}})
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("got %v, want invalid_argument", err)
	}
}

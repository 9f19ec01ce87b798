package store_test

import (
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
		if has, err := second.HasBlob(t.Context(), sum, int64(len(content))); !has || err != nil {
			t.Errorf("%.9q: HasBlob of the other: got %v, %v, want true", content, has, err)
		}
		if has, err := second.HasBlob(t.Context(), sum, int64(len(content))+1); has || err != nil {
			t.Errorf("%.9q: HasBlob with another size: got %v, %v, want false", content, has, err)
		}
		if got := readBlob(t, second, sum); got != content {
			t.Errorf("got %d bytes, want %d", len(got), len(content))
		}
		forget(t, first)
		if got := readBlob(t, first, sum); got != content {
			t.Errorf("without its own file: got %d bytes, want %d", len(got), len(content))
		}
	}
	if first.Elsewhere() {
		t.Error("Elsewhere: got true, want false with an object store")
	}
}

// A blob is known to be kept before PutBlob returns, also if this server has had it before.
func TestBlobsArePutIntoObjects(t *testing.T) {
	far := &storetest.Objects{}
	first, _ := servers(t, far)
	sum, err := first.PutBlob(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	name := far.Names()[0]
	if err := far.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if has, err := first.HasBlob(t.Context(), sum, 7); has || err != nil {
		t.Errorf("after its removal: got %v, %v, want false", has, err)
	}
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
	if _, err := first.HasBlob(t.Context(), sum, 7); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("HasBlob: got %v, want backend_unavailable", err)
	}
}

func TestChangedObjectIsRefused(t *testing.T) {
	far := &storetest.Objects{}
	first, second := servers(t, far)
	sum, err := first.PutBlob(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	far.Change(far.Names()[0], []byte("forgery"), 0)
	if _, err := second.OpenBlob(t.Context(), sum); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
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

func TestOldObjectsAreDiscarded(t *testing.T) {
	far := &storetest.Objects{}
	first, second := servers(t, far)
	old, err := first.PutBlob(t.Context(), []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	far.Change(far.Names()[0], nil, time.Hour)
	fresh, err := first.PutBlob(t.Context(), []byte("young"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for shard := range store.BlobShards {
		sums, err := second.OldBlobs(t.Context(), shard, young)
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, sums...)
	}
	if len(listed) != 1 || listed[0] != old {
		t.Fatalf("got %v, want %s alone", listed, old)
	}
	for _, sum := range []string{old, old, fresh, "..", ""} {
		if err := second.DiscardBlob(t.Context(), sum, young); err != nil {
			t.Error(err)
		}
	}
	if has, err := first.HasBlob(t.Context(), old, 3); has || err != nil {
		t.Errorf("discarded: got %v, %v, want false", has, err)
	}
	if got := readBlob(t, second, fresh); got != "young" {
		t.Errorf("got %q, want the young blob", got)
	}
}

// A blob of another database in the same bucket is no orphan of this one.
func TestDatabasesShareABucket(t *testing.T) {
	far := &storetest.Objects{}
	first, _ := servers(t, far)
	if _, err := first.PutBlob(t.Context(), []byte("content")); err != nil {
		t.Fatal(err)
	}
	far.Change(far.Names()[0], nil, time.Hour)
	another, _ := servers(t, far)
	for shard := range store.BlobShards {
		if sums, err := another.OldBlobs(t.Context(), shard, young); len(sums) != 0 || err != nil {
			t.Errorf("shard %d: got %v, %v, want none", shard, sums, err)
		}
	}
}

// A copy that a machine has made does not stay for ever.
func TestCopiesOfBlobsGo(t *testing.T) {
	far := &storetest.Objects{}
	first, second := servers(t, far)
	sum, err := first.PutBlob(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	readBlob(t, second, sum)
	found, err := filepath.Glob(filepath.Join(second.Dir(), "blobs*", sum[:2], sum))
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want a copy", found, err)
	}
	for _, step := range []struct {
		age  time.Duration
		want bool
	}{{time.Minute, true}, {2 * time.Hour, false}} {
		age(t, found[0], step.age)
		for shard := range store.BlobShards {
			if _, err := second.OldBlobs(t.Context(), shard, young); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(found[0]); (err == nil) != step.want {
			t.Errorf("%s old: got %v, want a copy: %v", step.age, err, step.want)
		}
	}
	if got := readBlob(t, second, sum); got != "content" {
		t.Errorf("got %q", got)
	}
	if _, err := second.OpenBlob(t.Context(), strings.Repeat("a", 64)); !errors.Is(err, fs.ErrNotExist) {
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

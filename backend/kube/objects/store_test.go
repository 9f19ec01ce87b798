package objects_test

import (
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend/kube/objects"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestServersShareABucket: a blob that one server has put is read by another one with a directory of its own.
func TestServersShareABucket(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("needs PostgreSQL")
	}
	bucket, _ := testkit.S3(t)
	far, err := objects.Open(bucket)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var both []*store.Store
	for _, name := range []string{"1", "2"} {
		s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(dir, name), Postgres: storetest.URL(dir), Objects: far})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		both = append(both, s)
	}
	sum, err := both[0].PutBlob(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := both[1].ReadBlob(t.Context(), sum); err != nil || string(got) != "content" {
		t.Errorf("got %q, %v, want the content", got, err)
	}
}

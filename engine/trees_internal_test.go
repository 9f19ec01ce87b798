package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// TestKnownTreesTakeLittleMemory: what is remembered of the packages of a namespace stays in memory. The list of a tree may have
// 4 MiB, and a namespace 64 trees.
func TestKnownTreesTakeLittleMemory(t *testing.T) {
	state := t.TempDir()
	e, err := New(t.Context(), Config{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	manifest := []byte(`{"version":1,"target":{"language":"python","runtime":"cp311"},"installed":[{"name":"demo","license":"of the list"}]}`)
	sum := sha256.Sum256(manifest)
	digest := hex.EncodeToString(sum[:])
	dir := filepath.Join(packages.Dir(state), "trees", digest)
	if err = os.MkdirAll(filepath.Join(dir, "site-packages"), 0o700); err == nil {
		err = os.WriteFile(filepath.Join(dir, "manifest.json"), manifest, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := e.findTree(digest); err != nil || got.Digest != digest || !slices.Equal(got.Names, []string{"demo"}) {
			t.Fatalf("got %+v, %v; want the tree with its names", got, err)
		}
	}
	remembered := func() (all []string) {
		e.trees.Range(func(_, v any) bool {
			all = append(all, fmt.Sprintf("%+v", v))
			return true
		})
		return all
	}
	if all := remembered(); len(all) != 1 || strings.Contains(all[0], "of the list") {
		t.Errorf("got %q, want one tree without the list of its packages", all)
	}
	if err = os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err = e.findTree(digest); err == nil || len(remembered()) != 0 {
		t.Errorf("after its removal: got %v, and %q, want an error and nothing", err, remembered())
	}
}

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

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestPackagesOfAnEndedSession: a session may end while packages are installed into it. That is no fault of the server.
func TestPackagesOfAnEndedSession(t *testing.T) {
	e, err := New(t.Context(), Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	s, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	testkit.Need(t, "namespaces", sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable, "sandboxes cannot be made here")
	if err != nil {
		t.Fatal(err)
	}
	live, _, err := e.roomOf(t.Context(), s.Namespace, s.ID)
	if err == nil {
		err = e.TerminateSession(t.Context(), sandboxmcp.Caller{}, s.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	tree := interpreter.NewInstalled(sandboxmcp.Python, t.TempDir(), strings.Repeat("0", 64), nil)
	if err = live.show(t.Context(), tree); sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
		t.Errorf("got %v, want session_not_found", err)
	}
}

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

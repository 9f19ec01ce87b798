package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestClosedPlacesAreClosedByAMountToo: a mount may show the state directory, or another closed place, once more.
func TestClosedPlacesAreClosedByAMountToo(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	b := open(t)
	again := filepath.Join(b.root, "again")
	if err := os.Mkdir(again, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(b.state, again, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(again, syscall.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(again, "kept"), []byte("CANARY"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := b.exec("cat " + again + "/kept")
	wantCode(t, "a word", err, sandboxmcp.CodeHostPathDenied)
	if out, err := b.exec("ls -d " + b.root); err != nil || !strings.Contains(out.Stdout, b.root) {
		t.Errorf("beside it: got %+v, %v, want the directory", out, err)
	}
}

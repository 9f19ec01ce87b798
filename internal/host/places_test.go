package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
)

// TestClosedPlacesAreClosedUnderOtherNames: a file system that ignores case shows a file at many paths. A hard link is another path of a
// file on each file system.
func TestClosedPlacesAreClosedUnderOtherNames(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(settings, []byte("CANARY"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Own = append(c.Own, settings) })
	other := filepath.Join(b.root, "SETTINGS.yaml")
	if err := os.Link(settings, other); err != nil {
		t.Fatal(err)
	}
	b.wantOutput("cat "+b.file("beside", "open"), "open")
	b.wantRefused("cat "+other, sandboxmcp.CodeHostPathDenied)
}

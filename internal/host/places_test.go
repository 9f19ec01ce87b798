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

// TestTheRecordHasNoSecretOfADirectory: a program in a sandbox can give a directory the name of a secret that it has.
func TestTheRecordHasNoSecretOfADirectory(t *testing.T) {
	b := open(t)
	dir := filepath.Join(b.root, "secret-value")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "echo ok", Dir: dir}, starMasks{"secret-value"}); err != nil {
		t.Fatal(err)
	}
	page, err := b.audit.List(t.Context(), "default", sandboxmcp.AuditQuery{OldestFirst: true})
	if err != nil || len(page.Entries) != 2 || page.Entries[0].Metadata["cwd"] != filepath.Join(b.root, "***") {
		t.Errorf("record: got %+v, %v, want the secret masked", page.Entries, err)
	}
}

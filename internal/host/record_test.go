package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
)

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

// TestTheRecordHasNoExitCodeOfWhatDidNotBegin: a program that the kernel does not know has ended with nothing.
func TestTheRecordHasNoExitCodeOfWhatDidNotBegin(t *testing.T) {
	program := filepath.Join(t.TempDir(), "no-program")
	if err := os.WriteFile(program, []byte("neither binary nor script"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed = []string{program} })
	b.wantRefused(program, sandboxmcp.CodeExecutionFailed)
	page, err := b.audit.List(t.Context(), "default", sandboxmcp.AuditQuery{OldestFirst: true})
	if err != nil || len(page.Entries) != 2 || page.Entries[1].ExitCode != nil || *page.Entries[1].Success {
		t.Errorf("record: got %+v, %v, want no exit code", page.Entries, err)
	}
}

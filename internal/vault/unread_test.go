package vault_test

import (
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// TestAVaultThatCannotBeRead: if the database cannot be read, each look into the vault fails with backend_unavailable.
func TestAVaultThatCannotBeRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	open(t, dir, nil).add(t, "KEY", value)
	k := open(t, dir, func(c *vault.Config) { c.Given = true })
	if err := k.store.DB().Close(); err != nil {
		t.Fatal(err)
	}
	for name, look := range map[string]func() error{
		"Current": func() error { _, err := k.Current(t.Context(), "ns"); return err },
		"List":    func() error { _, err := k.List(t.Context(), "ns"); return err },
		"Sweep":   func() error { _, err := k.Sweep(t.Context()); return err },
	} {
		if err := look(); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
			t.Errorf("%s: got %v, want backend_unavailable", name, err)
		}
	}
}

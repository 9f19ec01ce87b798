package store_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// An address that cannot be read is told as one, without its password.
func TestABadAddressOfADatabase(t *testing.T) {
	const url = "postgres://u:hunter22@h:port/db"
	open := func() error {
		_, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Postgres: url})
		return err
	}
	look := func() error {
		_, err := store.Look(t.Context(), store.Config{Dir: t.TempDir(), Postgres: url})
		return err
	}
	for name, err := range map[string]error{"Open": open(), "Look": look()} {
		e := sandboxmcp.AsError(err)
		if e == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Hint, "SANDBOXMCP_DATABASE_URL") || strings.Contains(e.Error(), "hunter22") || strings.Contains(e.Message, "state directory") {
			t.Errorf("%s: got %+v, want that the address is wrong", name, err)
		}
	}
}

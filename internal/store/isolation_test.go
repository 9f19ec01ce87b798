package store_test

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestUpdatesSeeWhatWasCommitted: also if the database's own default is another isolation.
func TestUpdatesSeeWhatWasCommitted(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("needs PostgreSQL")
	}
	dir := t.TempDir()
	u, err := url.Parse(storetest.URL(dir))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("default_transaction_isolation", "serializable")
	u.RawQuery = q.Encode()
	s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(dir, "state"), Postgres: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var level string
	err = s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SHOW transaction_isolation").Scan(&level)
	})
	if err != nil || level != "read committed" {
		t.Errorf("got %q, %v, want read committed", level, err)
	}
}

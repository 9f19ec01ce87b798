package vault_test

import (
	"context"
	"database/sql"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// execute is a step that runs a statement.
func execute(query string) store.Op {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query)
		return err
	}
}

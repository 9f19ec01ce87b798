package installed

import (
	"context"
	"database/sql"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// between calls then after the first query.
type between struct {
	store.Querier

	then func()
}

func (b *between) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := b.Querier.QueryContext(ctx, query, args...)
	if then := b.then; then != nil {
		b.then = nil
		defer then()
	}
	return rows, err
}

// TestARemovalWhileRowsAreRead: a row that is removed between the reading of the rows and that of the record was not put back.
func TestARemovalWhileRowsAreRead(t *testing.T) {
	storetest.SQLite(t) // it reads the rows of a statement as they were when it began
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := audit.Open(t.Context(), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.WithoutCancel(t.Context())) })
	c := New(Config{Store: s, Key: func(purpose string) ([]byte, error) { return []byte(purpose), nil }})
	if err := c.Add(t.Context(), "one", Set{Language: sandboxmcp.Python, Digest: "x"}, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	remove := func() {
		_, err := c.Remove(t.Context(), "one", func(Set) bool { return true }, func(gone []Set) store.Op {
			return l.Op(&sandboxmcp.AuditEntry{Action: ActionRemoved, Phase: sandboxmcp.PhaseOutcome, Namespace: "one", Metadata: map[string]any{KeyRemoved: IDs(gone)}})
		})
		if err != nil {
			t.Error(err)
		}
	}
	rows, err := c.seals.read(t.Context(), &between{s.DB(), remove}, selectAll)
	if len(rows) != 0 || err != nil {
		t.Errorf("got %+v and %v, want no row", rows, err)
	}
}

package store

import (
	"context"
	"crypto/sha256"
	"sync"
)

// Row is a row of a result, as [sql.Row] and [sql.Rows] have it.
type Row interface{ Scan(dest ...any) error }

// Select returns the rows that a statement selects. scan reads one.
func Select[T any](ctx context.Context, db Querier, scan func(*T, Row) error, query string, args ...any) (all []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one T
		if err := scan(&one, rows); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// Told remembers which rows were logged, so that each is logged once. Its zero value is ready to use. It may be used
// concurrently.
type Told struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]bool // hashes of names, because a writer of the database may have made names of any length
}

// maxTold bounds how many rows are logged.
const maxTold = 1000

// New reports whether a row has to be logged, and remembers that it was. name says which row it is.
func (t *Told) New(name string) bool {
	key := sha256.Sum256([]byte(name))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[key] || len(t.all) >= maxTold {
		return false
	}
	if t.all == nil {
		t.all = map[[sha256.Size]byte]bool{}
	}
	t.all[key] = true
	return true
}

package audit

import (
	"context"
	"database/sql"

	"github.com/sandboxmcp/sandboxmcp"
)

// Rechain computes prev and hash of every row anew from its content, as a forger without the
// key can do.
func Rechain(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, selectEntries)
	if err != nil {
		return err
	}
	all := map[int64]row{}
	var order []int64
	for rows.Next() {
		var r row
		var position int64
		if err := r.scan(placeFirst{rows, &position, new(string)}); err != nil {
			return err
		}
		all[position], order = r, append(order, position)
	}
	if err := rows.Close(); err != nil {
		return err
	}
	ends := map[string]string{}
	for _, position := range order {
		r := all[position]
		if r.Prev = ends[r.Namespace]; r.Prev == "" {
			r.Prev = zeroHash
		}
		hash := r.hash()
		ends[r.Namespace] = hash
		if _, err := tx.ExecContext(ctx, `UPDATE audit SET prev = ?, hash = ? WHERE position = ?`, r.Prev, hash, position); err != nil {
			return err
		}
	}
	return nil
}

// Canonical is the canonical form of a JSON text.
func Canonical(text []byte) (string, error) { return canonicalText(text) }

// Listed returns the statements that count and list entries.
func Listed(ns sandboxmcp.Namespace, q sandboxmcp.AuditQuery) (count, list string, args []any) {
	return listed(ns, q)
}

// PublishAsIf publishes a checkpoint over size entries that has no row, as if it had just been committed.
func (l *Log) PublishAsIf(size int64, by Signer) {
	note, err := by.Note(statement{origin: originCheckpoint, size: size, at: l.now()}.text())
	if err != nil {
		panic(err)
	}
	l.sealer.fresh.Store(&checkpoint{size: size, note: note})
	l.sealer.publish()
}

// Doubtful reports whether entries were missing or changed when they were read.
func (r *Reader) Doubtful() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at.doubtful()
}

// Signed returns how many entries have a checkpoint, as far as this process knows.
func (l *Log) Signed() int64 { return l.signed() }

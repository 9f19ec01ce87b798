package artifact

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// sweepBatch is how many requests one transaction drops.
const sweepBatch = 500

// Dropped is a request whose result and files are no longer kept.
type Dropped struct {
	Namespace sandboxmcp.Namespace
	RequestID sandboxmcp.RequestID
	Files     int    // artifacts
	Bytes     int64  // of its output and artifacts
	Reason    string // "too old" or "too much"
}

// Sweep drops what is older than MaxAge, and in each namespace the oldest until
// the rest is within MaxBytes. The step that note returns for a request stands
// in the transaction that drops it: when it fails, the request is kept, with
// those that were to go in the same transaction. note is called for what this
// Sweep drops and not for what another one has dropped meanwhile.
//
// Then it removes content that no result has named for ten minutes, whoever has
// left it. It looks at a bounded part of all content, and the next Sweep at the
// part that follows. When ctx ends, what was dropped so far is.
func (k *Keeper) Sweep(ctx context.Context, note func(Dropped) store.Op) error {
	due, err := k.due(ctx)
	if err != nil {
		return err
	}
	for len(due) > 0 {
		batch := due[:min(sweepBatch, len(due))]
		due = due[len(batch):]
		err := k.store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for _, d := range batch {
				if err := drop(ctx, tx, d, note); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return k.removeOrphans(ctx)
}

// due lists what has to go: a namespace's requests are seen from the newest to
// the oldest, and those beyond the bound are too much.
func (k *Keeper) due(ctx context.Context) (due []Dropped, err error) {
	rows, err := k.store.DB().QueryContext(ctx, `SELECT namespace, request_id, created_at, coalesce(length(stdout), 0) + coalesce(length(stderr), 0), stdout_blob, stderr_blob,
		(SELECT coalesce(sum(size_bytes), 0) FROM artifacts a WHERE a.request_id = e.request_id)
		FROM executions e ORDER BY namespace, created_at DESC, request_id`)
	if err != nil {
		return nil, fmt.Errorf("list results: %w", err)
	}
	defer rows.Close()
	oldest := k.cfg.Now().Add(-k.cfg.MaxAge).UTC().Format(stamp)
	var ns sandboxmcp.Namespace
	var sum int64
	for rows.Next() {
		var d Dropped
		var created string
		var out, errs sql.NullString
		var files int64
		if err := rows.Scan(&d.Namespace, &d.RequestID, &created, &d.Bytes, &out, &errs, &files); err != nil {
			return nil, fmt.Errorf("list results: %w", err)
		}
		for _, b := range []sql.NullString{out, errs} {
			if b.Valid {
				d.Bytes += k.blobSize(b.String)
			}
		}
		d.Bytes += files
		if d.Namespace != ns {
			ns, sum = d.Namespace, 0
		}
		sum += d.Bytes
		switch {
		case created < oldest:
			d.Reason = "too old"
		case sum > k.cfg.MaxBytes:
			d.Reason = "too much"
		default:
			continue
		}
		due = append(due, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list results: %w", err)
	}
	return due, nil
}

// drop deletes a request's rows and notes it, unless it is gone already.
func drop(ctx context.Context, tx *sql.Tx, d Dropped, note func(Dropped) store.Op) error {
	n, err := remove(ctx, tx, `DELETE FROM executions WHERE request_id = ?`, d.RequestID)
	if err != nil {
		return fmt.Errorf("drop result: %w", err)
	}
	if n == 0 {
		return nil
	}
	if d.Files, err = remove(ctx, tx, `DELETE FROM artifacts WHERE request_id = ?`, d.RequestID); err != nil {
		return fmt.Errorf("drop artifacts: %w", err)
	}
	if err := note(d)(ctx, tx); err != nil {
		return fmt.Errorf("note what is dropped: %w", err)
	}
	return nil
}

// remove runs a DELETE and counts the rows.
func remove(ctx context.Context, tx *sql.Tx, query string, id sandboxmcp.RequestID) (int, error) {
	res, err := tx.ExecContext(ctx, query, id)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

func (k *Keeper) blobSize(sum string) int64 {
	f, err := k.store.OpenBlob(sum)
	if err != nil {
		return 0
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

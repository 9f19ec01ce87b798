package artifact

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	sweepBatch = 500              // requests that one transaction drops
	youngBlob  = 10 * time.Minute // a blob may be put this long before a row names it
)

// Dropped is a request whose result and files are no longer kept.
type Dropped struct {
	Namespace sandboxmcp.Namespace
	RequestID sandboxmcp.RequestID
	Names     []string // of its artifacts; may be empty
	Bytes     int64    // of its output and artifacts
	Reason    string   // "too old" or "too much"

	blobs []string
}

// Sweep drops what is older than MaxAge, and in each namespace the oldest until
// the rest is within MaxBytes. It returns what was dropped, also with an error,
// so that it can be written down. The audit is not touched.
func (k *Keeper) Sweep(ctx context.Context) ([]Dropped, error) {
	due, err := k.due(ctx)
	if err != nil {
		return nil, err
	}
	var done []Dropped
	for len(due) > 0 {
		batch := due[:min(sweepBatch, len(due))]
		due = due[len(batch):]
		err := k.store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for i := range batch {
				if err := drop(ctx, tx, &batch[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return done, err
		}
		done = append(done, batch...)
	}
	return done, k.removeBlobs(ctx, done)
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
				d.blobs = append(d.blobs, b.String)
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

// drop deletes a request's rows and notes which files they named.
func drop(ctx context.Context, tx *sql.Tx, d *Dropped) error {
	rows, err := tx.QueryContext(ctx, `DELETE FROM artifacts WHERE request_id = ? RETURNING name, sha256`, d.RequestID)
	if err != nil {
		return fmt.Errorf("drop artifacts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			return fmt.Errorf("drop artifacts: %w", err)
		}
		d.Names, d.blobs = append(d.Names, name), append(d.blobs, sum)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("drop artifacts: %w", err)
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM executions WHERE request_id = ?`, d.RequestID); err != nil {
		return fmt.Errorf("drop result: %w", err)
	}
	return nil
}

// removeBlobs removes the blobs that no row names any more. A young one is
// spared, because a result that names it may be on its way.
func (k *Keeper) removeBlobs(ctx context.Context, dropped []Dropped) error {
	seen := map[string]bool{}
	var all error
	for _, d := range dropped {
		for _, sum := range d.blobs {
			if seen[sum] {
				continue
			}
			seen[sum] = true
			var used bool
			err := k.store.DB().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM artifacts WHERE sha256 = ?1) OR EXISTS (SELECT 1 FROM executions WHERE stdout_blob = ?1 OR stderr_blob = ?1)`, sum).Scan(&used)
			if err != nil {
				return errors.Join(all, fmt.Errorf("look for blob: %w", err))
			}
			if used || k.isYoung(sum) {
				continue
			}
			all = errors.Join(all, k.store.RemoveBlob(sum))
		}
	}
	return all
}

func (k *Keeper) isYoung(sum string) bool {
	info, ok := k.statBlob(sum)
	return ok && k.cfg.Now().Sub(info.ModTime()) < youngBlob
}

func (k *Keeper) blobSize(sum string) int64 {
	info, ok := k.statBlob(sum)
	if !ok {
		return 0
	}
	return info.Size()
}

func (k *Keeper) statBlob(sum string) (fs.FileInfo, bool) {
	f, err := k.store.OpenBlob(sum)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	return info, err == nil
}

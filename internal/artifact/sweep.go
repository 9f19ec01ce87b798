package artifact

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// sweepBatch is the number of requests that one transaction drops.
const sweepBatch = 500

// Dropped identifies a request whose result and files were dropped, and says why.
type Dropped struct {
	Namespace sandboxmcp.Namespace
	RequestID sandboxmcp.RequestID
	Files     int    // artifacts
	Bytes     int64  // size of its result, outputs and files
	Reason    string // "too old" or "too much"
}

// Sweep drops results that are older than MaxAge, and then the oldest results of each
// namespace until the rest is within MaxBytes. The step that note returns for a request
// runs in the transaction that drops it. If that step fails, all requests of the
// transaction are kept. note is not called for requests that another process has dropped
// meanwhile.
//
// Then Sweep removes the content of the dropped results, and content that no result has
// referred to for ten minutes. It checks a bounded part of all content; the next Sweep
// continues from there. If ctx ends, the results dropped so far stay dropped.
func (k *Keeper) Sweep(ctx context.Context, note func(Dropped) store.Op) error {
	if err := k.store.Settle(ctx); err != nil {
		return err
	}
	due, err := k.due(ctx)
	if err != nil {
		return err
	}
	for len(due) > 0 {
		batch := due[:min(sweepBatch, len(due))]
		due = due[len(batch):]
		err := k.store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for _, d := range batch {
				if err := k.drop(ctx, tx, d, note); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := k.Discard(ctx); err != nil {
		return err
	}
	return k.removeOrphans(ctx)
}

// otherProcesses is the assumed number of processes that add to one namespace at the same
// time. Each may use its share of the free room before it reads the database again.
const otherProcesses = 8

// lookAgain is how long a process uses the free room that it has read.
const lookAgain = 5 * time.Second

// roomSeen is this process's share of a namespace's free room below MaxBytes.
type roomSeen struct {
	left int64 // bytes
	at   time.Time
}

// hasRoom subtracts the size of a result from the cached free room. It returns false if the
// result does not fit or the cache is too old, so that the caller must read the database.
func (k *Keeper) hasRoom(ns sandboxmcp.Namespace, size int64) bool {
	k.roomMu.Lock()
	defer k.roomMu.Unlock()
	r := k.room[ns]
	r.left -= size
	k.room[ns] = r
	return r.left >= 0 && k.cfg.Now().Sub(r.at) < lookAgain
}

// sawRoom caches the free room of a namespace that uses that many bytes.
func (k *Keeper) sawRoom(ns sandboxmcp.Namespace, used int64) {
	k.roomMu.Lock()
	defer k.roomMu.Unlock()
	k.room[ns] = roomSeen{(k.maxBytes.Load() - used) / otherProcesses, k.cfg.Now()}
}

// makeRoom drops the oldest results of a namespace that exceeds MaxBytes, but never newest.
// It goes 5 % below the limit, so that the next records fit.
func (k *Keeper) makeRoom(ctx context.Context, tx *sql.Tx, ns sandboxmcp.Namespace, newest sandboxmcp.RequestID, note func(Dropped) store.Op) error {
	var sum int64
	if err := tx.QueryRowContext(ctx, selectKeptBytes, ns).Scan(&sum); err != nil {
		return fmt.Errorf("read how much is kept: %w", err)
	}
	if k.sawRoom(ns, sum); sum <= k.maxBytes.Load() {
		return nil
	}
	var due []Dropped
	rows, err := tx.QueryContext(ctx, selectOldest, ns, newest, sweepBatch)
	if err != nil {
		return fmt.Errorf("list results: %w", err)
	}
	defer rows.Close()
	for sum > k.maxBytes.Load()-k.maxBytes.Load()/spareShare && rows.Next() {
		d := Dropped{Namespace: ns, Reason: tooMuch}
		if err := rows.Scan(&d.RequestID, &d.Bytes); err != nil {
			return fmt.Errorf("list results: %w", err)
		}
		sum -= d.Bytes
		due = append(due, d)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return fmt.Errorf("list results: %w", err)
	}
	for _, d := range due {
		if err := k.drop(ctx, tx, d, note); err != nil {
			return err
		}
	}
	return nil
}

// spareShare is the share of MaxBytes that makeRoom frees: 1/20.
const spareShare = 20

// Reasons of a Dropped.
const (
	tooOld  = "too old"
	tooMuch = "too much"
)

// due lists the requests to drop. It adds up the sizes of each namespace's requests, from
// the newest to the oldest.
func (k *Keeper) due(ctx context.Context) (due []Dropped, err error) {
	if err = k.measure(ctx); err != nil {
		return nil, err
	}
	rows, err := k.store.DB().QueryContext(ctx, selectByAge)
	if err != nil {
		return nil, fmt.Errorf("list results: %w", err)
	}
	defer rows.Close()
	oldest := store.FormatTime(k.cfg.Now().Add(-time.Duration(k.maxAge.Load())))
	var ns sandboxmcp.Namespace
	var sum int64
	for rows.Next() {
		var d Dropped
		var created string
		if err := rows.Scan(&d.Namespace, &d.RequestID, &created, &d.Bytes); err != nil {
			return nil, fmt.Errorf("list results: %w", err)
		}
		if d.Namespace != ns {
			ns, sum = d.Namespace, 0
		}
		sum += d.Bytes
		switch {
		case created < oldest:
			d.Reason = tooOld
		case sum > k.maxBytes.Load():
			d.Reason = tooMuch
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

// measure sets the sizes of results that an older release has stored.
func (k *Keeper) measure(ctx context.Context) error {
	rows, err := k.store.DB().QueryContext(ctx, selectUnmeasured, rowBytes)
	if err != nil {
		return fmt.Errorf("measure results: %w", err)
	}
	defer rows.Close()
	sizes := map[sandboxmcp.RequestID]int64{}
	for rows.Next() {
		var id sandboxmcp.RequestID
		var size int64
		var out, errs sql.NullString
		if err := rows.Scan(&id, &size, &out, &errs); err != nil {
			return fmt.Errorf("measure results: %w", err)
		}
		for _, sum := range []string{out.String, errs.String} {
			size += max(k.store.BlobSize(sum), 0)
		}
		sizes[id] = size
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(sizes) == 0 {
		return err
	}
	return k.store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for id, size := range sizes {
			if _, err := tx.ExecContext(ctx, setBytes, size, id); err != nil {
				return fmt.Errorf("measure results: %w", err)
			}
		}
		return nil
	})
}

// drop deletes a request's rows and runs the step that note returns, unless the rows are
// gone already. Discard removes the content of the rows.
func (k *Keeper) drop(ctx context.Context, tx *sql.Tx, d Dropped, note func(Dropped) store.Op) error {
	if err := k.leave(ctx, tx, d.RequestID); err != nil {
		return err
	}
	n, err := remove(ctx, tx, deleteExecution, d.RequestID)
	if err != nil {
		return fmt.Errorf("drop result: %w", err)
	}
	if n == 0 {
		return nil
	}
	if d.Files, err = remove(ctx, tx, deleteArtifacts, d.RequestID); err != nil {
		return fmt.Errorf("drop artifacts: %w", err)
	}
	if err := note(d)(ctx, tx); err != nil {
		return fmt.Errorf("record what is dropped: %w", err)
	}
	return nil
}

// remove runs a DELETE and returns the number of rows.
func remove(ctx context.Context, tx *sql.Tx, query string, id sandboxmcp.RequestID) (int, error) {
	res, err := tx.ExecContext(ctx, query, id)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

package artifact

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

const (
	// youngBlob is for how long a blob may be there before a row names it.
	youngBlob = 10 * time.Minute
	// orphanBatch is how many blobs are discarded while nobody else can write.
	orphanBatch = 100
)

// firstShard is where the first look of a Keeper begins. It is not the same for
// all: of many commands that end soon, each goes through another part.
func firstShard() uint32 {
	var b [1]byte
	rand.Read(b[:]) // never fails
	return uint32(b[0])
}

// removeOrphans removes blobs that no row names. Those of dropped requests are
// among them, and those of a run that ended before its result was kept. What is
// removed does not count for how much is looked at: sweeps keep up with however
// much is left behind.
func (k *Keeper) removeOrphans(ctx context.Context) error {
	looked := 0
	for range store.BlobShards {
		if looked >= k.cfg.Look {
			break
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("look for blobs: %w", err)
		}
		shard := int(k.shard.Add(1) % store.BlobShards)
		old, err := k.store.OldBlobs(shard, youngBlob)
		if err != nil {
			return err
		}
		if len(old) == 0 {
			continue
		}
		named, err := k.named(ctx, shard)
		if err != nil {
			return err
		}
		orphans := slices.DeleteFunc(old, func(sum string) bool { return named[sum] })
		looked += len(named)
		for batch := range slices.Chunk(orphans, orphanBatch) {
			if err := k.store.Update(ctx, k.discard(batch)); err != nil {
				return err
			}
		}
	}
	return k.store.RemoveDiscarded(ctx)
}

// named returns the blobs of a shard that rows name. It sees what is committed:
// rows that a transaction deletes are not gone before that has succeeded.
func (k *Keeper) named(ctx context.Context, shard int) (map[string]bool, error) {
	from := fmt.Sprintf("%02x", shard)
	rows, err := k.store.DB().QueryContext(ctx, `SELECT sha256 FROM artifacts WHERE sha256 BETWEEN ?1 AND ?2
		UNION SELECT stdout_blob FROM executions WHERE stdout_blob BETWEEN ?1 AND ?2
		UNION SELECT stderr_blob FROM executions WHERE stderr_blob BETWEEN ?1 AND ?2`, from, from+"g")
	if err != nil {
		return nil, fmt.Errorf("list named blobs: %w", err)
	}
	defer rows.Close()
	named := map[string]bool{}
	for rows.Next() {
		var sum string
		if err := rows.Scan(&sum); err != nil {
			return nil, fmt.Errorf("list named blobs: %w", err)
		}
		named[sum] = true
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list named blobs: %w", err)
	}
	return named, nil
}

// discard takes blobs away that are still named by no row and still old. While
// it runs, no process can commit a row that names one.
func (k *Keeper) discard(sums []string) store.Op {
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, sum := range sums {
			var used bool
			err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM artifacts WHERE sha256 = ?1)
				OR EXISTS (SELECT 1 FROM executions WHERE stdout_blob = ?1) OR EXISTS (SELECT 1 FROM executions WHERE stderr_blob = ?1)`, sum).Scan(&used)
			if err != nil {
				return fmt.Errorf("look for blob: %w", err)
			}
			if used {
				continue
			}
			if err := k.store.DiscardBlob(sum, youngBlob); err != nil {
				return err
			}
		}
		return nil
	}
}

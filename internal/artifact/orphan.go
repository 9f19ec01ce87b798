package artifact

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

const (
	// youngBlob is the age up to which a blob without references is kept.
	youngBlob = 10 * time.Minute
	// orphanBatch is the number of blobs that one transaction discards.
	orphanBatch = 100
)

// firstShard returns a random shard for the first sweep of a Keeper, so that short-lived
// commands sweep different parts.
func firstShard() uint32 {
	var b [1]byte
	rand.Read(b[:]) // never fails
	return uint32(b[0])
}

// removeOrphans removes blobs that no row refers to: those of dropped requests, and those
// of runs that ended before their result was stored. Only blobs with references count
// toward Config.Look, so a sweep keeps up with any number of orphans.
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
			if err := k.store.Update(ctx, k.discard(batch, youngBlob)); err != nil {
				return err
			}
		}
	}
	return k.store.RemoveDiscarded(ctx)
}

// named returns the blobs of a shard that committed rows refer to.
func (k *Keeper) named(ctx context.Context, shard int) (map[string]bool, error) {
	from := fmt.Sprintf("%02x", shard)
	rows, err := k.store.DB().QueryContext(ctx, selectNamed, from, from+"g")
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

// leave notes the blobs that a request's rows refer to. Discard removes them once the rows
// are deleted.
func (k *Keeper) leave(ctx context.Context, tx *sql.Tx, id sandboxmcp.RequestID) error {
	rows, err := tx.QueryContext(ctx, selectNamedBy, id)
	if err != nil {
		return fmt.Errorf("list content: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var sum string
		if err := rows.Scan(&sum); err != nil {
			return fmt.Errorf("list content: %w", err)
		}
		k.left.add(sum)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list content: %w", err)
	}
	return nil
}

// leftBlobs are the blobs of dropped rows.
type leftBlobs struct {
	mu   sync.Mutex
	sums map[string]bool
}

func (l *leftBlobs) add(sum string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sums == nil {
		l.sums = map[string]bool{}
	}
	l.sums[sum] = true
}

func (l *leftBlobs) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := slices.Collect(maps.Keys(l.sums))
	l.sums = nil
	return sums
}

// Discard removes the content of dropped results, unless another result refers to it. What
// Discard cannot remove is removed by a later Sweep.
func (k *Keeper) Discard(ctx context.Context) error {
	sums := k.left.take()
	if len(sums) == 0 {
		return nil
	}
	for batch := range slices.Chunk(sums, orphanBatch) {
		// A transaction that drops rows may still fail, so only committed rows count.
		unnamed, err := k.unnamed(ctx, batch)
		if err != nil {
			return err
		}
		if err = k.store.Update(ctx, k.discard(unnamed, 0)); err != nil {
			return err
		}
	}
	return k.store.RemoveDiscarded(ctx)
}

// unnamed returns those of the blobs that no committed row refers to.
func (k *Keeper) unnamed(ctx context.Context, sums []string) ([]string, error) {
	var left []string
	for _, sum := range sums {
		var used bool
		if err := k.store.DB().QueryRowContext(ctx, isNamed, sum).Scan(&used); err != nil {
			return nil, fmt.Errorf("look for blob: %w", err)
		}
		if !used {
			left = append(left, sum)
		}
	}
	return left, nil
}

// discard removes the blobs that no row refers to and that are at least age old. While it
// runs, no process can commit a row that refers to one.
func (k *Keeper) discard(sums []string, age time.Duration) store.Op {
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, sum := range sums {
			var used bool
			if err := tx.QueryRowContext(ctx, isNamed, sum).Scan(&used); err != nil {
				return fmt.Errorf("look for blob: %w", err)
			}
			if used {
				continue
			}
			if err := k.store.DiscardBlob(sum, age); err != nil {
				return err
			}
		}
		return nil
	}
}

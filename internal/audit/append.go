package audit

import (
	"context"
	"database/sql"
	"errors"

	"golang.org/x/mod/sumdb/tlog"
)

// maxEnds bounds how many ends of chains are remembered.
const maxEnds = 256

// ends remembers where the chains end. It is valid while the record ends with the entry
// that this process appended last: then no other process has appended, and nothing was
// undone. Only transactions use it, so one goroutine at a time.
type ends struct {
	last string // hash of that entry
	of   map[string]chainEnd

	first  int64       // place of the first of leaves
	leaves []tlog.Hash // of consecutive last entries, all appended by this process
}

type chainEnd struct {
	seq  int64
	hash string
}

// append gives the row its place in its chain, inserts it, and returns its position over
// all namespaces. It tries the remembered end first: that is one statement instead of two.
func (e *ends) append(ctx context.Context, tx *sql.Tx, r *row) (position int64, err error) {
	end, known := e.of[r.Namespace]
	if known {
		position, err = r.insert(ctx, tx, end, e.last)
	}
	if !known || err != nil { // an error of another kind comes back
		e.leaves = e.leaves[:0]
		if end, err = e.look(ctx, tx, r.Namespace, known); err != nil {
			return 0, err
		}
		if position, err = r.insert(ctx, tx, end, nil); err != nil {
			return 0, err
		}
	}
	if e.of == nil || len(e.of) >= maxEnds {
		e.of = map[string]chainEnd{}
	}
	e.last, e.of[r.Namespace] = r.Hash, chainEnd{r.Seq, r.Hash}
	return position, e.leaf(position, r.Hash)
}

// leaf remembers the leaf of an entry for the sealer.
func (e *ends) leaf(position int64, hash string) error {
	if len(e.leaves) > 2*maxTail || position != e.first+int64(len(e.leaves)) {
		e.first, e.leaves = position, e.leaves[:0]
	}
	leaf, err := leafOf(hash)
	if err == nil {
		e.leaves = append(e.leaves, leaf)
	}
	return err
}

// since returns the leaves after the first size entries, or nil if not all are known.
func (e *ends) since(size int64) []tlog.Hash {
	if i := size + 1 - e.first; i >= 0 && i < int64(len(e.leaves)) {
		return e.leaves[i:]
	}
	return nil
}

// prepare makes the column values that do not depend on the row's place. It is called
// outside the transaction, so that no writer waits for it.
func (r *row) prepare() {
	r.values = []any{
		r.ID, r.Namespace, nil, nil, r.Action, r.Phase, r.RequestID, r.SessionID, r.Language,
		orNull(r.ExitCode), orNull(r.DurationMS), orNull(r.Success), r.Detail, r.Actor, orNull(r.Usage), orNull(r.Metadata), nil, nil, nil,
	}
}

func orNull[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// look reads the end of a chain. It forgets the remembered ends if they are out of date.
func (e *ends) look(ctx context.Context, tx *sql.Tx, ns string, stale bool) (end chainEnd, err error) {
	if !stale && e.last != "" {
		var last string
		err = tx.QueryRowContext(ctx, selectLastHash).Scan(&last)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return end, err
		}
		stale = last != e.last
	}
	if stale {
		e.of = nil
	}
	err = tx.QueryRowContext(ctx, selectEnd, ns).Scan(&end.seq, &end.hash)
	if errors.Is(err, sql.ErrNoRows) { // its entries were dropped for their age, or there never was one
		err = tx.QueryRowContext(ctx, selectDroppedEnd, ns).Scan(&end.seq, &end.hash)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return chainEnd{hash: zeroHash}, nil
	}
	return end, err
}

// insert inserts the row after the end of its chain. It fails unless the record ends with
// the entry that has the hash last; nil accepts any end.
func (r *row) insert(ctx context.Context, tx *sql.Tx, end chainEnd, last any) (position int64, err error) {
	r.Seq, r.Prev = end.seq+1, end.hash
	r.Hash = r.hash()
	args := r.values
	args[2], args[3], args[16], args[17], args[18] = r.Seq, r.Timestamp, r.Prev, r.Hash, last
	res, err := tx.ExecContext(ctx, insertEntry, args...)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

package audit

import (
	"context"
	"database/sql"
	"errors"

	"golang.org/x/mod/sumdb/tlog"
)

// maxEnds bounds how many ends of chains are remembered.
const maxEnds = 256

// ends caches the last entry of each chain. The cache is valid as long as the last entry of
// the record is the one that this process appended last. Otherwise another process has
// appended, a transaction was undone, or entries were removed, which mark finds. Only
// transactions use it, one at a time.
type ends struct {
	macs *macs  // nil: entries get no MAC
	mark *mark  // remembers the last committed entry; nil: removed entries are not looked for
	last string // hash of the entry that this process appended last
	at   int64  // position of the record's last entry
	of   map[string]chainEnd

	first  int64       // position of the first of leaves
	leaves []tlog.Hash // leaves of consecutive entries up to the last one, all appended by this process
}

type chainEnd struct {
	seq  int64
	hash string
}

// append appends the row to its chain and returns its position over all namespaces. It
// tries the cached end of the chain first, which takes one statement instead of two.
func (e *ends) append(ctx context.Context, tx *sql.Tx, r *row) (position int64, err error) {
	end, known := e.of[r.Namespace]
	if known {
		position, err = e.insert(ctx, tx, r, end, e.last)
	}
	if _, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return 0, err // after an error, PostgreSQL executes nothing more in the transaction
	}
	if !known || err != nil { // if insert failed for another reason, the second attempt returns that error
		e.leaves = e.leaves[:0]
		if end, err = e.look(ctx, tx, r.Namespace, known); err != nil {
			return 0, err
		}
		if position, err = e.insert(ctx, tx, r, end, nil); err != nil {
			return 0, err
		}
	}
	if e.of == nil || len(e.of) >= maxEnds {
		e.of = map[string]chainEnd{}
	}
	e.last, e.at, e.of[r.Namespace] = r.Hash, position, chainEnd{r.Seq, r.Hash}
	e.mark.appended(position, r.Hash)
	return position, e.leaf(position, r.Hash)
}

// leaf caches the leaf of an entry for the sealer.
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

// since returns the leaves after the first size entries, or nil if some of them are not
// cached.
func (e *ends) since(size int64) []tlog.Hash {
	if i := size + 1 - e.first; i >= 0 && i < int64(len(e.leaves)) {
		return e.leaves[i:]
	}
	return nil
}

// prepare computes the column values that do not depend on the row's place in its chain. It
// is called outside the transaction, so that it delays no other writer.
func (r *row) prepare() {
	r.values = []any{
		r.ID, r.Namespace, nil, nil, r.Action, r.Phase, r.RequestID, r.SessionID, r.Language,
		orNull(r.ExitCode), orNull(r.DurationMS), orNull(r.Success), r.Detail, r.Actor, orNull(r.Usage), orNull(r.Metadata), nil, nil, nil, nil, nil,
	}
}

func orNull[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// look reads the end of a chain and the record's last position. It clears the cache if that is out of
// date, or if stale is set.
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
		if err = e.mark.look(ctx, tx); err != nil {
			return end, err
		}
	}
	err = tx.QueryRowContext(ctx, selectEnd, ns).Scan(&end.seq, &end.hash, &e.at)
	if errors.Is(err, sql.ErrNoRows) { // the namespace has no entries, or they were dropped because of their age
		err = tx.QueryRowContext(ctx, selectDroppedEnd, ns).Scan(&end.seq, &end.hash, &e.at)
	}
	return end, err
}

// insert inserts the row after the end of its chain, with its hash and its MAC. It fails unless last is the
// hash of the record's last entry. If last is nil, it does not check that.
func (e *ends) insert(ctx context.Context, tx *sql.Tx, r *row, end chainEnd, last any) (position int64, err error) {
	r.Seq, r.Prev = end.seq+1, end.hash
	r.Hash = r.hash()
	args := r.values
	position = e.at + 1
	args[2], args[3], args[16], args[17], args[18], args[19], args[20] = r.Seq, r.Timestamp, r.Prev, r.Hash, last, e.macs.of(position, r.Hash), position
	res, err := tx.ExecContext(ctx, insertEntry, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 { // PostgreSQL has found that the end is out of date
		err = sql.ErrNoRows
	}
	return position, err
}

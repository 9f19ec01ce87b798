package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// dropAtOnce is the largest number of entries that one transaction drops. It is at least
// the number of entries that one checkpoint adds.
const dropAtOnce = sealAtOnce

// Drop drops entries that are older than keep, the oldest first, and returns their number.
// It drops only entries under a checkpoint, and never the last entry. A signed statement
// replaces them, with their number, their root and the end of each chain. [Verify] starts
// from that statement. Once this process has found a fault, nothing is dropped, because it may be evidence.
func (l *Log) Drop(ctx context.Context, keep time.Duration) (n int64, err error) {
	if l.sealer == nil || keep <= 0 {
		return 0, nil
	}
	for !l.sealer.broken.Load() {
		var some int64
		err := l.store.Update(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			some, err = l.drop(ctx, tx, formatTime(l.now().Add(-keep)))
			return err
		})
		if errors.As(err, new(*tamperedError)) {
			_ = l.sealer.failed(err)
		}
		if n += some; err != nil || some == 0 {
			return n, err
		}
	}
	return n, nil
}

// drop drops at most dropAtOnce entries. It drops up to the newest checkpoint whose entries
// are all older than before.
func (l *Log) drop(ctx context.Context, tx *sql.Tx, before string) (int64, error) {
	c, was, err := l.boundary(ctx, tx, before)
	if err != nil || c.size == 0 {
		return 0, err
	}
	open := l.sealer.signer.OpenNote
	st, err := openStatement(open, originCheckpoint, c.note)
	if err == nil && st.size != c.size {
		err = errors.New("it was signed for another number of entries")
	}
	if err != nil {
		return 0, &tamperedError{reason: fmt.Sprintf("checkpoint %d: %v", c.size, err)}
	}
	e, err := parseEdge(c.size, c.edge)
	if err != nil || e.root() != st.root {
		return 0, &tamperedError{reason: fmt.Sprintf("checkpoint %d does not have the edge that was signed", c.size)}
	}
	ends, err := checkSpan(ctx, tx, was, st, before)
	if err == nil {
		err = l.checkDropped(ctx, tx, was)
	}
	if err != nil {
		return 0, err
	}
	for ns, end := range ends {
		if _, err = tx.ExecContext(ctx, setDroppedEnd, ns, end.seq, end.hash); err != nil {
			return 0, fmt.Errorf("drop old audit entries: %w", err)
		}
	}
	sum, _, err := endsOf(ctx, tx)
	if err != nil {
		return 0, err
	}
	note, err := statement{origin: originDropped, size: c.size, root: st.root, at: l.now(), ends: sum}.signed(l.sealer.signer)
	if err != nil {
		return 0, err
	}
	for _, step := range []struct {
		query string
		args  []any
	}{
		{insertRotation, []any{c.size, note, c.edge}},
		{deleteRotations, []any{c.size}},
		{deleteEntries, []any{c.size}},
		{deleteCheckpoints, []any{c.size}},
	} {
		if _, err := tx.ExecContext(ctx, step.query, step.args...); err != nil {
			return 0, fmt.Errorf("drop old audit entries: %w", err)
		}
	}
	return c.size - was.size, nil
}

// checkDropped checks the statement about entries that were dropped earlier, and the ends of their chains. The next
// statement takes these over, and would confirm a change of them.
func (l *Log) checkDropped(ctx context.Context, tx *sql.Tx, was checkpoint) error {
	sum, ends, err := endsOf(ctx, tx)
	if err != nil {
		return err
	}
	if was.size == 0 {
		if len(ends) > 0 {
			return &tamperedError{reason: unstatedEnds}
		}
		return nil
	}
	st, err := openStatement(l.sealer.signer.OpenNote, originDropped, was.note)
	switch {
	case err != nil:
	case st.size != was.size:
		err = fmt.Errorf("it was signed for %d", st.size)
	case st.ends != sum:
		err = errOtherEnds
	}
	if err != nil {
		return &tamperedError{reason: fmt.Sprintf("the statement about %d dropped entries: %v", was.size, err)}
	}
	return nil
}

// Faults of the ends of chains of dropped entries.
const unstatedEnds = "a table says that entries were dropped, and there is no statement about them"

var errOtherEnds = errors.New("the ends of the chains do not match the signed ones")

// boundary returns the checkpoint up to which entries are to be dropped, and the statement
// about entries that were dropped earlier. If there is nothing to drop, the size of c is 0.
func (l *Log) boundary(ctx context.Context, tx *sql.Tx, before string) (c, was checkpoint, err error) {
	if was, err = lastDropped(ctx, tx); err != nil {
		return c, was, err
	}
	// The first entry to keep: the last entry, the first one that is too young, or the one
	// at dropAtOnce.
	var last, stays int64
	if err = tx.QueryRowContext(ctx, selectLastPosition).Scan(&last); err != nil {
		return c, was, err
	}
	most := was.size + dropAtOnce + 1
	err = tx.QueryRowContext(ctx, selectFirstYoung, was.size, most, before).Scan(&stays)
	if errors.Is(err, sql.ErrNoRows) {
		stays, err = most, nil
	}
	if err != nil {
		return c, was, err
	}
	stays = min(stays, last)
	err = tx.QueryRowContext(ctx, selectNewestBetween, stays, was.size).Scan(&c.size, &c.note, &c.edge)
	if errors.Is(err, sql.ErrNoRows) {
		return checkpoint{}, was, nil
	}
	return c, was, err
}

func lastDropped(ctx context.Context, db store.Querier) (c checkpoint, err error) {
	err = db.QueryRowContext(ctx, selectRotation).Scan(&c.size, &c.note, &c.edge)
	if errors.Is(err, sql.ErrNoRows) {
		return checkpoint{}, nil
	}
	return c, err
}

// checkSpan checks that the entries to drop match their checkpoints, because they cannot be
// checked any more once they are dropped. It returns the end of each chain. Their times are checked, too: an index that
// somebody has changed may have hidden a young entry from boundary.
func checkSpan(ctx context.Context, tx *sql.Tx, was checkpoint, st statement, before string) (map[string]chain, error) {
	tree, err := parseEdge(was.size, was.edge)
	if err != nil {
		return nil, &tamperedError{reason: err.Error()}
	}
	var large int64
	if err = tx.QueryRowContext(ctx, selectLarge, st.size, maxRow).Scan(&large); err == nil {
		return nil, &tamperedError{reason: fmt.Sprintf("row %d has more than %d MiB", large, maxRow>>20)}
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, selectFirstEntries, st.size)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ends := map[string]chain{}
	for rows.Next() {
		var r row
		var position int64
		if err := r.scan(placeFirst{rows, &position, new(string)}); err != nil {
			return nil, &tamperedError{reason: err.Error()}
		}
		hash := r.hash()
		leaf, err := leafOf(hash)
		if err != nil || position != tree.size+1 || hash != r.Hash {
			return nil, &tamperedError{reason: fmt.Sprintf("row %d is not what was signed", position)}
		}
		if r.Timestamp >= before {
			return nil, &tamperedError{reason: fmt.Sprintf("row %d is not old, and an index hides that", position)}
		}
		tree.add(leaf)
		ends[r.Namespace] = chain{seq: r.Seq, hash: hash}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if tree.size != st.size || tree.root() != st.root {
		return nil, &tamperedError{reason: fmt.Sprintf("the first %d rows are not what was signed", st.size)}
	}
	return ends, nil
}

// endsOf returns the ends of the chains of dropped entries, and the SHA-256 over them.
func endsOf(ctx context.Context, db store.Querier) (sum string, ends map[string]chain, err error) {
	rows, err := db.QueryContext(ctx, selectDroppedEnds)
	if err != nil {
		return "", nil, err
	}
	defer rows.Close()
	h, ends := sha256.New(), map[string]chain{}
	for rows.Next() {
		var ns string
		var c chain
		if err := rows.Scan(&ns, &c.seq, &c.hash); err != nil {
			return "", nil, err
		}
		ends[ns] = c
		if strings.Contains(ns+c.hash, "\n") { // no server makes such a row, and its text could be that of several
			ns, c.hash = strconv.Quote(ns), strconv.Quote(c.hash)
		}
		h.Write([]byte(ns + " " + strconv.FormatInt(c.seq, 10) + " " + c.hash + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil)), ends, rows.Err()
}

// dropped checks the statement about dropped entries. The check of the remaining entries
// continues from it.
func (v *verifier) dropped(ctx context.Context, tx *sql.Tx) error {
	c, err := lastDropped(ctx, tx)
	if err != nil {
		return err
	}
	sum, ends, err := endsOf(ctx, tx)
	if err != nil {
		return err
	}
	if c.size == 0 {
		if len(ends) > 0 {
			v.fault(kindCheckpoint, place{}, unstatedEnds)
		}
		return nil
	}
	where := fmt.Sprintf("the statement about %d dropped entries", c.size)
	s, ok := v.note(originDropped, where, c.note)
	if !ok && v.with.Open != nil {
		v.broken = true
		return nil
	}
	tree, err := parseEdge(c.size, c.edge)
	if !ok { // it cannot be checked; end reports that
		s = statement{origin: originDropped, size: c.size, root: tree.root(), ends: sum}
	}
	switch {
	case s.size != c.size:
		err = fmt.Errorf("it was signed for %d", s.size)
	case err == nil && tree.root() != s.root:
		err = errors.New("the edge of its tree is not that of what was signed")
	case err == nil && s.ends != sum:
		err = errOtherEnds
	}
	if err != nil {
		v.broken = true
		v.fault(kindCheckpoint, place{}, where+": "+err.Error())
		return nil
	}
	h := s.head()
	v.report.Dropped = &h
	v.tree, v.sound = tree, c.size
	for ns, c := range ends {
		v.chains[ns] = &chain{seq: c.seq, hash: c.hash}
		v.order = append(v.order, ns)
	}
	return nil
}

func (v *verifier) droppedSize() int64 {
	if v.report.Dropped == nil {
		return 0
	}
	return v.report.Dropped.Size
}

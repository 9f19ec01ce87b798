package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// mark remembers the last entry of this process that was committed. Entries that have no checkpoint yet can be
// removed without a trace in the database: the next entry takes their place in the chain. That looks
// like an undone transaction, but the store tells the mark which ones were undone.
//
// Transactions use it, and the store uses it between transactions, one at a time. A nil mark does nothing.
type mark struct {
	open  func(signed string) (text string, err error) // checks a signed note
	found *findings                                    // keeps what look has found; nil: it is not kept

	update entryPlace // last entry of the steps that run
	batch  entryPlace // last entry of the earlier steps of the transaction
	sure   entryPlace // last entry of committed transactions

	lost atomic.Pointer[tamperedError] // set when an entry was found to be removed
}

// entryPlace is an entry's place in the record. The zero value is no entry.
type entryPlace struct {
	position int64
	hash     string
}

func (m *mark) appended(position int64, hash string) {
	if m != nil {
		m.update = entryPlace{position, hash}
	}
}

// Ran implements [store.Follower].
func (m *mark) Ran(kept bool) {
	if kept && m.update.position > 0 {
		m.batch = m.update
	}
	m.update = entryPlace{}
}

// Ended implements [store.Follower].
func (m *mark) Ended(committed bool) {
	if committed && m.batch.position > 0 {
		m.sure = m.batch
	}
	m.update, m.batch = entryPlace{}, entryPlace{}
}

// last returns the entry that the transaction must find.
func (m *mark) last() entryPlace {
	for _, e := range []entryPlace{m.update, m.batch} {
		if e.position > 0 {
			return e
		}
	}
	return m.sure
}

// look looks for the entry, and sets lost if it is neither in the record nor covered by a signed statement
// about dropped entries.
func (m *mark) look(ctx context.Context, tx *sql.Tx) error {
	if m == nil || m.lost.Load() != nil {
		return nil
	}
	last := m.last()
	if last.position == 0 {
		return nil
	}
	found, err := has(ctx, tx, selectHashAt, last.position, last.hash)
	if err == nil && !found {
		found, err = dropped(ctx, tx, m.open, last.position)
	}
	if err != nil || found {
		return err
	}
	lost := &tamperedError{reason: fmt.Sprintf("row %d, which a server has appended, is missing or another one", last.position), at: last}
	m.lost.Store(lost)
	_ = m.found.keep(lost) // at once, because a killed server forgets it; the sealer tries again
	return nil
}

// has reports whether the statement query selects one text for a number, and it is this one.
func has(ctx context.Context, db store.Querier, query string, number int64, text string) (bool, error) {
	var got string
	err := db.QueryRowContext(ctx, query, number).Scan(&got)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil && got == text, err
}

// droppedTo returns the position up to which entries were dropped because of their age, as a signed statement says. It is 0 if
// there is no such statement.
func droppedTo(ctx context.Context, db store.Querier, open func(signed string) (text string, err error)) (int64, error) {
	c, err := lastDropped(ctx, db)
	if err != nil {
		return 0, err
	}
	if st, bad := openStatement(open, originDropped, c.note); bad != nil || st.size != c.size {
		return 0, nil
	}
	return c.size, nil
}

// dropped reports whether a signed statement says that the entry at a position was dropped because of its age.
func dropped(ctx context.Context, db store.Querier, open func(signed string) (text string, err error), position int64) (bool, error) {
	size, err := droppedTo(ctx, db, open)
	return err == nil && position <= size, err
}

// find is look, and fails if an entry was removed.
func (m *mark) find(ctx context.Context, tx *sql.Tx) error {
	if err := m.look(ctx, tx); err != nil {
		return err
	}
	if lost := m.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// Package limits says which limits hold for a request. It keeps, in the state directory, the
// limits that hold for a namespace in place of the configured ones. They are asked for at every request, by every process
// that has the directory open, and rarely change. So they are kept in memory and read
// again only after a change; see [store.Watch].
package limits

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Table has the stored limits of a state directory. Its methods may be called concurrently,
// and several processes may change the same table.
type Table struct {
	store *store.Store
	now   func() time.Time
	watch *store.Watch
	kept  *store.Cached[map[sandboxmcp.Namespace]row]
}

// row has the stored limits of a namespace, or the reason why they cannot be read.
type row struct {
	limits sandboxmcp.Limits
	err    error
}

// topic is the name of the [store.Watch] for limits.
const topic = "limits"

// New returns the table in s. now returns the time; nil: time.Now.
func New(s *store.Store, now func() time.Time) *Table {
	if now == nil {
		now = time.Now
	}
	t := &Table{store: s, now: now, watch: s.Watch(topic)}
	t.kept = store.NewCached(t.watch, t.read)
	return t
}

// Kept returns the stored limits of a namespace. A field is 0 if no limit is stored for it.
// It includes every committed change of any process.
func (t *Table) Kept(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.Limits, error) {
	all, err := t.kept.Get(ctx)
	if err != nil {
		return sandboxmcp.Limits{}, err
	}
	return all[ns].limits, all[ns].err
}

// read reads all rows. If one cannot be decoded, only the requests of its namespace fail.
func (t *Table) read(ctx context.Context) (map[sandboxmcp.Namespace]row, error) {
	rows, err := t.store.DB().QueryContext(ctx, selectAll)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	defer rows.Close()
	all := map[sandboxmcp.Namespace]row{}
	for rows.Next() {
		var ns sandboxmcp.Namespace
		var text string
		if err = rows.Scan(&ns, &text); err != nil {
			return nil, fmt.Errorf("read limits: %w", err)
		}
		var r row
		r.limits, r.err = decode(text)
		all[ns] = r
	}
	if err = rows.Err(); err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	return all, nil
}

func decode(text string) (l sandboxmcp.Limits, err error) {
	if err = json.Unmarshal([]byte(text), &l); err != nil {
		return l, fmt.Errorf("decode kept limits: %w", err)
	}
	return l, l.Check()
}

// errSame undoes an Update that changes nothing.
var errSame = errors.New("the limits stay as they are")

// Change replaces the stored limits of a namespace by the result of change, in one
// transaction. The step that record returns runs first, so a change that cannot be recorded
// is not made. If change returns its argument, nothing is written and record is not called.
// An error of change is returned unchanged. If all limits are 0, the namespace has no
// stored limits. change and record must be quick, and may be called from another goroutine.
func (t *Table) Change(ctx context.Context, ns sandboxmcp.Namespace, change func(kept sandboxmcp.Limits) (sandboxmcp.Limits, error), record func() store.Op) error {
	err := t.watch.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		was, err := t.row(ctx, tx, ns)
		if err != nil {
			return err
		}
		is, err := change(was)
		if err != nil {
			return err
		}
		if is == was {
			return errSame
		}
		if err = record()(ctx, tx); err != nil {
			return err
		}
		return t.write(ctx, tx, ns, is)
	})
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}

func (t *Table) row(ctx context.Context, tx *sql.Tx, ns sandboxmcp.Namespace) (sandboxmcp.Limits, error) {
	var text string
	err := tx.QueryRowContext(ctx, selectOne, ns).Scan(&text)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return sandboxmcp.Limits{}, nil
	case err != nil:
		return sandboxmcp.Limits{}, fmt.Errorf("read limits: %w", err)
	}
	return decode(text)
}

func (t *Table) write(ctx context.Context, tx *sql.Tx, ns sandboxmcp.Namespace, is sandboxmcp.Limits) error {
	if is == (sandboxmcp.Limits{}) {
		if _, err := tx.ExecContext(ctx, deleteOne, ns); err != nil {
			return fmt.Errorf("forget limits: %w", err)
		}
		return nil
	}
	text, err := json.Marshal(is)
	if err != nil {
		return fmt.Errorf("encode limits: %w", err)
	}
	_, err = tx.ExecContext(ctx, setOne, ns, store.FormatTime(t.now()), string(text))
	if err != nil {
		return fmt.Errorf("keep limits: %w", err)
	}
	return nil
}

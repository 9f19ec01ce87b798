// Package limits keeps, in the state directory, the limits that hold for a
// namespace in place of the configured ones. They are asked for at every
// request, by every process that has the directory open, and change hardly ever.
//
// So they are read once, and then again when the mark beside the database has
// changed: a small file that is not there until somebody sets a limit, that says
// "changing" from before a change is committed until after it, and then holds a
// word that it never held before. While it says "changing" nothing is taken from
// memory; whoever dies between leaves it so, which is slower and still right.
package limits

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Table is what is kept in a state directory. Its methods may be called
// concurrently, and several processes may change the same table.
type Table struct {
	store *store.Store
	now   func() time.Time
	mark  string // the file; empty: the database is in memory, and nobody else has it

	mu   sync.Mutex
	seen string                                     // what the mark said when kept was read; empty: it was not
	kept map[sandboxmcp.Namespace]sandboxmcp.Limits // whole
}

// New returns the table in s. Now tells the time; nil is the machine's clock.
func New(s *store.Store, now func() time.Time) *Table {
	if now == nil {
		now = time.Now
	}
	t := &Table{store: s, now: now}
	if p := s.Path(); p != store.MemoryPath {
		t.mark = p + "-limits"
	}
	return t
}

// Kept returns the limits that a namespace keeps; 0 is one that it does not. A
// change that any process was told to be made is seen.
func (t *Table) Kept(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.Limits, error) {
	said, err := t.readMark()
	if err != nil {
		return sandboxmcp.Limits{}, err
	}
	if said == "" {
		return sandboxmcp.Limits{}, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if said == t.seen {
		return t.kept[ns], nil
	}
	all, err := t.read(ctx)
	if err != nil {
		return sandboxmcp.Limits{}, err
	}
	if !strings.HasPrefix(said, changing) {
		t.seen, t.kept = said, all
	}
	return all[ns], nil
}

func (t *Table) read(ctx context.Context) (map[sandboxmcp.Namespace]sandboxmcp.Limits, error) {
	rows, err := t.store.DB().QueryContext(ctx, `SELECT namespace, kept FROM limits`)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	defer rows.Close()
	all := map[sandboxmcp.Namespace]sandboxmcp.Limits{}
	for rows.Next() {
		var ns sandboxmcp.Namespace
		var text string
		if err = rows.Scan(&ns, &text); err != nil {
			return nil, fmt.Errorf("read limits: %w", err)
		}
		if all[ns], err = decode(text); err != nil {
			return nil, err
		}
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

// Change replaces what a namespace keeps by what change makes of it, in one
// transaction with the step that record returns, which runs first: what is not
// on record is not changed. Where change returns what it was given nothing is
// written, and record is not asked. An error of change is returned as it is. All
// of its limits being 0, the namespace keeps none. Change and record must be
// quick, and may be called from another goroutine.
func (t *Table) Change(ctx context.Context, ns sandboxmcp.Namespace, change func(kept sandboxmcp.Limits) (sandboxmcp.Limits, error), record func() store.Op) error {
	word := ""
	err := t.store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		was, err := t.row(ctx, tx, ns)
		if err != nil {
			return err
		}
		is, err := change(was)
		if err != nil || is == was {
			return err
		}
		if err = record()(ctx, tx); err != nil {
			return err
		}
		if word, err = t.begin(); err != nil {
			return err
		}
		return t.write(ctx, tx, ns, is)
	})
	if word != "" { // also when it failed: then what was kept is read once more
		t.settle(word)
	}
	return err
}

func (t *Table) row(ctx context.Context, tx *sql.Tx, ns sandboxmcp.Namespace) (sandboxmcp.Limits, error) {
	var text string
	err := tx.QueryRowContext(ctx, `SELECT kept FROM limits WHERE namespace = ?`, ns).Scan(&text)
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
		if _, err := tx.ExecContext(ctx, `DELETE FROM limits WHERE namespace = ?`, ns); err != nil {
			return fmt.Errorf("forget limits: %w", err)
		}
		return nil
	}
	text, err := json.Marshal(is)
	if err != nil {
		return fmt.Errorf("encode limits: %w", err)
	}
	_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO limits (namespace, changed_at, kept) VALUES (?, ?, ?)`, ns, t.now().UTC().Format(time.RFC3339Nano), string(text))
	if err != nil {
		return fmt.Errorf("keep limits: %w", err)
	}
	return nil
}

// changing begins a mark that must not be trusted.
const changing = "changing "

// memoryMark is what there is in place of the file where nobody else has the
// database: reading it is cheap enough.
const memoryMark = changing + "in memory"

// maxMark is more than a mark has.
const maxMark = 1024

// readMark returns what the mark says; empty: nobody has ever set a limit.
func (t *Table) readMark() (string, error) {
	if t.mark == "" {
		return memoryMark, nil
	}
	text, err := plainfile.Read(t.mark, maxMark)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the limits of the namespaces cannot be read").
			WithHint("see to the file " + t.mark).WithCause(err)
	case len(text) == 0: // not ours
		return changing, nil
	}
	return string(text), nil
}

// begin says that the limits are changing. It is called by who has the
// database's lock.
func (t *Table) begin() (word string, err error) {
	word = changing + rand.Text()
	if err := t.put(word); err != nil {
		return "", sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the limits cannot be changed: their mark cannot be written").
			WithHint("see to the directory of " + t.store.Path()).WithCause(err)
	}
	return word, nil
}

// settle says that they have changed, unless somebody else changes them by now.
func (t *Table) settle(word string) {
	if said, err := t.readMark(); err == nil && said == word && t.mark != "" {
		_ = t.put(rand.Text()) // else it stays as it is: slower, and right
	}
}

func (t *Table) put(text string) error {
	if t.mark == "" {
		return nil
	}
	temp := t.mark + "." + rand.Text()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("mark limits as changed: %w", err)
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temp, t.mark)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("mark limits as changed: %w", err), os.Remove(temp))
	}
	return nil
}

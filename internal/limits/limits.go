// Package limits stores limits of namespaces in the state directory. They replace the
// configured defaults. Every process reads them at every request, but they rarely change.
//
// A Table therefore caches them and reads them again only if the mark has changed. The mark
// is a small file beside the database. It does not exist until a limit is set for the first
// time. It begins with "changing" from before a change is committed until after it, and then
// holds a new random word. While it says "changing", the cache is not used. If a process
// dies during a change, the mark stays so: requests are slower, but still correct.
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

// Table holds the stored limits of all namespaces. Its methods may be called concurrently,
// and several processes may use the same state directory.
type Table struct {
	store *store.Store
	now   func() time.Time
	mark  string // path of the mark; empty: the database is in memory and has one user

	mu   sync.Mutex
	seen string                                     // content of the mark when kept was read; empty: not read
	kept map[sandboxmcp.Namespace]sandboxmcp.Limits // cache of all stored limits
}

// New returns the table in s. now returns the current time; nil: time.Now.
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

// Kept returns the stored limits of a namespace; a limit of 0 is not stored. It sees every
// change, of any process, whose Change has returned.
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

// Change replaces the stored limits of a namespace by the result of change. If all limits of
// the result are 0, the namespace has none stored. The step that record returns runs before,
// in the same transaction: a change that cannot be recorded is not made. If change returns
// its argument, nothing is written, and record is not called. Change returns an error of
// change unchanged. change and record must be fast and may be called from another goroutine.
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
	if word != "" { // also on error; the limits are then only read once more
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

// changing begins a mark that forbids the use of the cache.
const changing = "changing "

// memoryMark replaces the mark of a database in memory. It disables the cache, because
// reading such a database is fast.
const memoryMark = changing + "in memory"

// maxMark is more bytes than a mark has.
const maxMark = 1024

// readMark returns the content of the mark; empty: no limit was ever set.
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
	case len(text) == 0: // no process writes an empty mark
		return changing, nil
	}
	return string(text), nil
}

// begin writes the mark of a change that is being made. The caller is in a transaction and
// so holds the database's lock.
func (t *Table) begin() (word string, err error) {
	word = changing + rand.Text()
	if err := t.put(word); err != nil {
		return "", sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the limits cannot be changed: their mark cannot be written").
			WithHint("see to the directory of " + t.store.Path()).WithCause(err)
	}
	return word, nil
}

// settle writes the mark of a change that is complete, unless another change has begun.
func (t *Table) settle(word string) {
	if said, err := t.readMark(); err == nil && said == word && t.mark != "" {
		_ = t.put(rand.Text()) // on error the mark stays "changing": slower, but correct
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

// Package installed keeps, in the state directory, which package trees the later runs of a
// namespace see. The trees themselves belong to package packages. They are asked for at every
// run, by every process that has the directory open, and rarely change. So they are kept in
// memory and read again only after a change; see [store.Watch].
package installed

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// MaxSets is how many sets of one language a namespace can have: each is a directory that
// every import searches.
const MaxSets = 32

// Set is a package tree that the later runs of a namespace see.
type Set struct {
	Language  sandboxmcp.Language
	Digest    string   // of the tree
	Requested []string // the specs, as they were asked for
	AddedAt   time.Time
	ID        string // of the row; see [ActionRemoved]. Add ignores it.
}

// Config says where sets are kept.
type Config struct {
	Store  *store.Store
	Record *audit.Reader                        // reads the record for this table
	Key    func(purpose string) ([]byte, error) // derives a secret from the signing key; nil: no set is kept, and none is used
	Now    func() time.Time                     // nil: time.Now
	Logger *slog.Logger                         // nil: the default one
}

// Table has the sets of a state directory. Its methods may be called concurrently, and several
// processes may change the same table.
type Table struct {
	store *store.Store
	now   func() time.Time
	macs  store.RowMACs
	told  told
	last  atomic.Pointer[map[string]checked] // of the last reading of the whole table
	watch *store.Watch
	kept  *store.Cached[inForce]
	gone  *removals
}

// inForce has the sets in force, as a reading of the table has found them.
type inForce struct {
	of    map[sandboxmcp.Namespace][]Set
	grown int64 // of the removals that it knew
}

// topic is the name of the [store.Watch] for sets.
const topic = "packages"

// New returns the table of a store.
func New(c Config) *Table {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	t := &Table{store: c.Store, now: c.Now, macs: store.NewRowMACs(c.Key, macPurpose), told: told{log: c.Logger}, watch: c.Store.Watch(topic), gone: newRemovals(c.Record)}
	t.kept = store.NewCached(t.watch, t.read)
	return t
}

// Of returns the sets of a namespace, the latest first. The caller does not change them. It
// includes every committed change of any process.
func (t *Table) Of(ctx context.Context, ns sandboxmcp.Namespace) ([]Set, error) {
	all, err := t.kept.Get(ctx)
	if err != nil || len(all.of[ns]) == 0 {
		return nil, err
	}
	if err = t.gone.reader.Again(ctx, t.store.DB()); err != nil {
		return nil, fmt.Errorf("read which packages were removed: %w", err)
	}
	sets := all.of[ns]
	if t.gone.grown.Load() == all.grown {
		return sets, nil
	}
	// What this process has learned of the record since it has read their rows ends them as well.
	return slices.DeleteFunc(slices.Clone(sets), func(s Set) bool { return t.gone.has(s.ID) }), nil
}

// Owners returns the namespaces that have a tree among their sets, by its digest.
func (t *Table) Owners(ctx context.Context) (map[string][]string, error) {
	all, err := t.kept.Get(ctx)
	owners := map[string][]string{}
	for ns, sets := range all.of {
		for _, s := range sets {
			owners[s.Digest] = append(owners[s.Digest], string(ns))
		}
	}
	return owners, err
}

func (t *Table) read(ctx context.Context) (all inForce, err error) {
	l := t.look()
	all.grown = t.gone.grown.Load()
	rows, err := l.read(ctx, t.store.DB(), t.macs, "")
	if err != nil {
		return all, fmt.Errorf("read installed packages: %w", err)
	}
	t.last.Store(&l.now) // not in a transaction, which may be undone
	all.of = map[sandboxmcp.Namespace][]Set{}
	for n := range rows {
		if rows[n].state != whole {
			continue
		}
		s, err := rows[n].set()
		if err != nil {
			return inForce{}, fmt.Errorf("read installed packages: %w", err)
		}
		ns := sandboxmcp.Namespace(rows[n].namespace)
		all.of[ns] = append(all.of[ns], s)
	}
	t.told.all(rows)
	return all, nil
}

// Add gives a namespace a set, which becomes its latest. The step record runs in the same
// transaction, so a set that cannot be recorded is not added. A namespace with MaxSets others
// of the language fails with invalid_argument.
func (t *Table) Add(ctx context.Context, ns sandboxmcp.Namespace, s Set, record store.Op) error {
	requests, err := json.Marshal(s.Requested)
	if err != nil {
		return fmt.Errorf("encode installed packages: %w", err)
	}
	if err = t.gone.read(ctx, t.store.DB()); err != nil { // from now on, no removal of the set is missed
		return fmt.Errorf("read which packages were removed: %w", err)
	}
	return t.watch.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		have, err := t.of(ctx, tx, ns)
		if err != nil {
			return err
		}
		r := row{namespace: string(ns), language: string(s.Language), digest: s.Digest, added: store.FormatTime(t.now()), requested: string(requests), id: newID()}
		others := 0
		for _, h := range have {
			switch {
			case h.state != whole || h.language != r.language:
			case h.digest == r.digest:
				r.id = h.id // so the record of its removal also names earlier copies of the row
			default:
				others++
			}
		}
		if others >= MaxSets {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "namespace %s has %d sets of %s packages; more would slow every import down", ns, others, s.Language).
				WithHint("remove some with `sandboxmcp packages remove`, or install into a session")
		}
		mac, err := t.macs.Of(r.columns()...)
		if err != nil {
			return fmt.Errorf("keep installed packages: %w", err)
		}
		if err = record(ctx, tx); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, setOne, r.namespace, r.language, r.digest, r.added, r.requested, r.id, mac); err != nil {
			return fmt.Errorf("keep installed packages: %w", err)
		}
		return nil
	})
}

// errNone undoes an Update that changes nothing.
var errNone = errors.New("nothing matches")

// Remove removes the sets of a namespace for which match returns true, and returns them. These include sets that are
// not in force, such as those of a release without MACs. record returns the step that records the removal; it runs in
// the same transaction, and its entry is that of [ActionRemoved]. If nothing matches, nothing is written and record is
// not called.
func (t *Table) Remove(ctx context.Context, ns sandboxmcp.Namespace, match func(Set) bool, record func(gone []Set) store.Op) ([]Set, error) {
	var gone []Set
	err := t.watch.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		have, err := t.of(ctx, tx, ns)
		if err != nil {
			return err
		}
		gone = nil
		for n := range have {
			s, unread := have[n].set()
			if unread != nil && have[n].state == whole {
				return fmt.Errorf("read installed packages: %w", unread)
			}
			if unread == nil && match(s) { // a forged row may not be readable
				gone = append(gone, s)
			}
		}
		if len(gone) == 0 {
			return errNone
		}
		for _, s := range gone {
			for _, query := range []string{endOne, deleteOne} {
				if _, err = tx.ExecContext(ctx, query, ns, s.Language, s.Digest); err != nil {
					return fmt.Errorf("forget installed packages: %w", err)
				}
			}
		}
		return record(gone)(ctx, tx)
	})
	if errors.Is(err, errNone) {
		return nil, nil
	}
	if err == nil {
		t.gone.keep(IDs(gone))
	}
	return gone, err
}

func (t *Table) look() *look {
	l := &look{now: map[string]checked{}, known: t.gone}
	if was := t.last.Load(); was != nil {
		l.was = *was
	}
	return l
}

// of returns the rows of a namespace within a transaction.
func (t *Table) of(ctx context.Context, tx *sql.Tx, ns sandboxmcp.Namespace) ([]row, error) {
	all, err := t.look().read(ctx, tx, t.macs, string(ns))
	if err != nil {
		return nil, fmt.Errorf("read installed packages: %w", err)
	}
	return all, nil
}

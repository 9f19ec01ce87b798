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
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
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
}

// Table has the sets of a state directory. Its methods may be called concurrently, and several
// processes may change the same table.
type Table struct {
	store *store.Store
	now   func() time.Time
	watch *store.Watch
	kept  *store.Cached[map[sandboxmcp.Namespace][]Set]
}

// topic is the name of the [store.Watch] for sets.
const topic = "packages"

// New returns the table in s. now returns the time; nil: time.Now.
func New(s *store.Store, now func() time.Time) *Table {
	if now == nil {
		now = time.Now
	}
	t := &Table{store: s, now: now, watch: s.Watch(topic)}
	t.kept = store.NewCached(t.watch, t.read)
	return t
}

// Of returns the sets of a namespace, the latest first. The caller does not change them. It
// includes every committed change of any process.
func (t *Table) Of(ctx context.Context, ns sandboxmcp.Namespace) ([]Set, error) {
	all, err := t.kept.Get(ctx)
	return all[ns], err
}

// Owners returns the namespaces that have a tree among their sets, by its digest.
func (t *Table) Owners(ctx context.Context) (map[string][]string, error) {
	all, err := t.kept.Get(ctx)
	owners := map[string][]string{}
	for ns, sets := range all {
		for _, s := range sets {
			owners[s.Digest] = append(owners[s.Digest], string(ns))
		}
	}
	return owners, err
}

func (t *Table) read(ctx context.Context) (map[sandboxmcp.Namespace][]Set, error) {
	rows, err := t.store.DB().QueryContext(ctx, selectAll)
	if err != nil {
		return nil, fmt.Errorf("read installed packages: %w", err)
	}
	return scan(rows)
}

// scan reads rows and closes them.
func scan(rows *sql.Rows) (map[sandboxmcp.Namespace][]Set, error) {
	defer rows.Close()
	all := map[sandboxmcp.Namespace][]Set{}
	for rows.Next() {
		var (
			ns              sandboxmcp.Namespace
			s               Set
			added, requests string
		)
		err := rows.Scan(&ns, &s.Language, &s.Digest, &added, &requests)
		if err == nil {
			err = json.Unmarshal([]byte(requests), &s.Requested)
		}
		if err == nil {
			s.AddedAt, err = store.ParseTime(added)
		}
		if err != nil {
			return nil, fmt.Errorf("read installed packages: %w", err)
		}
		all[ns] = append(all[ns], s)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read installed packages: %w", err)
	}
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
	return t.watch.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		have, err := t.of(ctx, tx, ns)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(have, func(h Set) bool { return h.Language != s.Language || h.Digest == s.Digest })
		if len(others) >= MaxSets {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "namespace %s has %d sets of %s packages; more would slow every import down", ns, len(others), s.Language).
				WithHint("remove some with `sandboxmcp packages remove`, or install into a session")
		}
		if err = record(ctx, tx); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, setOne, ns, s.Language, s.Digest, store.FormatTime(t.now()), string(requests)); err != nil {
			return fmt.Errorf("keep installed packages: %w", err)
		}
		return nil
	})
}

// errNone undoes an Update that changes nothing.
var errNone = errors.New("nothing matches")

// Remove removes the sets of a namespace for which match returns true, and returns them. record
// returns the step that records that; it runs in the same transaction. If nothing matches,
// nothing is written and record is not called.
func (t *Table) Remove(ctx context.Context, ns sandboxmcp.Namespace, match func(Set) bool, record func(gone []Set) store.Op) ([]Set, error) {
	var gone []Set
	err := t.watch.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		have, err := t.of(ctx, tx, ns)
		if err != nil {
			return err
		}
		gone = slices.DeleteFunc(have, func(s Set) bool { return !match(s) })
		if len(gone) == 0 {
			return errNone
		}
		for _, s := range gone {
			if _, err = tx.ExecContext(ctx, deleteOne, ns, s.Language, s.Digest); err != nil {
				return fmt.Errorf("forget installed packages: %w", err)
			}
		}
		return record(gone)(ctx, tx)
	})
	if errors.Is(err, errNone) {
		return nil, nil
	}
	return gone, err
}

// of returns the sets of a namespace within a transaction.
func (t *Table) of(ctx context.Context, tx *sql.Tx, ns sandboxmcp.Namespace) ([]Set, error) {
	rows, err := tx.QueryContext(ctx, selectOf, ns)
	if err != nil {
		return nil, fmt.Errorf("read installed packages: %w", err)
	}
	all, err := scan(rows)
	return all[ns], err
}

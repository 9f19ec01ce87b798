package installed

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// A row has a MAC, so that a writer of the database without the signing key cannot give a namespace packages. Such a
// writer can still put back a row that was removed. So the ids of removed rows are read from the audit record; see also
// removals.

// macPurpose is the purpose for which the secret of the MACs is derived from the signing key.
const macPurpose = "sandboxmcp packages 1"

// ActionRemoved is the action of the audit entry of a removal. Its metadata has the [IDs] of the removed sets as
// [KeyRemoved].
const (
	ActionRemoved = "remove_package"
	KeyRemoved    = "set_ids"
)

// IDs returns the ids of sets. Sets whose rows had no right MAC have none.
func IDs(sets []Set) []string {
	all := []string{}
	for _, s := range sets {
		if s.ID != "" {
			all = append(all, s.ID)
		}
	}
	return all
}

func newID() string { return "set_" + strings.ToLower(rand.Text()) }

// row is a row of table packages.
type row struct {
	namespace, language, digest, added, requested, id string

	mac   sql.NullString // not valid: the row is of a release without MACs
	state state
}

// state says whether a row is in force. If it is not, the packages are not there.
type state int

const (
	whole  state = iota // in force
	lapsed              // made by a release without MACs
	forged              // its MAC is wrong
	back                // put back after it was removed
)

// fault describes a row that is forged or was put back; "": it is neither.
func (r *row) fault() string {
	switch r.state {
	case forged:
		return fmt.Sprintf("packages %.100q of namespace %.100q were not installed by a server with the signing key, or their row was changed since", r.digest, r.namespace)
	case back:
		return fmt.Sprintf("packages %.100q of namespace %.100q were removed, and their row was put back", r.digest, r.namespace)
	default:
		return ""
	}
}

// set decodes a row.
func (r *row) set() (s Set, err error) {
	s = Set{Language: sandboxmcp.Language(r.language), Digest: r.digest}
	if r.state == whole || r.state == back {
		s.ID = r.id
	}
	if err = json.Unmarshal([]byte(r.requested), &s.Requested); err == nil {
		s.AddedAt, err = store.ParseTime(r.added)
	}
	return s, err
}

// columns returns the columns before the MAC, which covers all of them.
func (r *row) columns() []string {
	return []string{r.namespace, r.language, r.digest, r.added, r.requested, r.id}
}

// read returns the rows of a namespace, or of all if only is empty, each with its state. If l is not nil, read skips entries of
// the record that cannot name a row. Otherwise it reads the whole record without an index.
func (l *look) read(ctx context.Context, db store.Querier, macs store.RowMACs, only string) ([]row, error) {
	all, err := store.Select(ctx, db, (*row).scan, selectAll)
	if err != nil {
		return nil, err
	}
	if only != "" { // to a statement, a namespace that a writer of the database has made a blob would be another one
		all = slices.DeleteFunc(all, func(r row) bool { return r.namespace != only })
	}
	fit := map[string][]*row{} // by namespace
	for n := range all {
		r := &all[n]
		switch {
		case !r.mac.Valid:
			r.state = lapsed
		case !macs.Fit(r.mac.String, r.columns()...):
			r.state = forged
		default:
			fit[r.namespace] = append(fit[r.namespace], r)
		}
	}
	if err = l.removals(ctx, db, fit); err != nil {
		return nil, err
	}
	put := false
	var removed map[string]bool
	if l == nil && len(fit) > 0 {
		if removed, err = allRemoved(ctx, db); err != nil {
			return nil, err
		}
	}
	for ns, rows := range fit {
		if l != nil {
			if removed, err = l.removedIn(ctx, db, ns, rows); err != nil {
				return nil, err
			}
		}
		for _, r := range rows {
			if removed[r.id] || l.knows(r.id) {
				r.state, put = back, true
			}
		}
	}
	if !put {
		return all, nil
	}
	// The entry of a removal may be younger than the rows that were read. Such a row has gone by now.
	now, err := store.Select(ctx, db, (*row).scan, selectAll)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(r row) bool {
		return r.state == back && !slices.ContainsFunc(now, func(o row) bool { return o.namespace == r.namespace && o.id == r.id })
	}), nil
}

func (r *row) scan(from store.Row) error {
	return from.Scan(&r.namespace, &r.language, &r.digest, &r.added, &r.requested, &r.id, &r.mac)
}

// look is a reading of the table: the result of the one before, and its own. Each removal adds an entry to the record, and a
// caller may install and remove packages all day, so a reading does not read all of these entries again.
type look struct {
	was, now map[string]checked // by namespace
	known    *removals
}

// removals reads which rows were removed, outside of a transaction.
func (l *look) removals(ctx context.Context, db store.Querier, fit map[string][]*row) error {
	if _, inside := db.(*sql.Tx); l == nil || inside || len(fit) == 0 {
		return nil
	}
	return l.known.read(ctx, db)
}

func (l *look) knows(id string) bool { return l != nil && l.known.has(id) }

// checked has the ids of rows that were in force, and the number of the last entry that was read then.
type checked struct {
	ids map[string]bool
	seq int64
}

// clockSlack is how much the clocks of servers may differ: that of each is at most a minute from the one of a database that they share.
const clockSlack = 3 * time.Minute

// olderRead is how many entries in a row are read although their times are before those of all rows. The clock may have been set
// back since a row was added, so that its removal seems to be older.
const olderRead = 1000

// removedIn returns the ids of the rows of a namespace that were removed, as the audit record names them. Entries that are
// older than a row do not name it; see olderRead. If the reading before has found it in force, neither do the entries that were read then.
func (l *look) removedIn(ctx context.Context, db store.Querier, ns string, rows []*row) (map[string]bool, error) {
	was, after, before := l.was[ns], int64(math.MaxInt64), time.Unix(1<<40, 0) // entries are read that have a higher number, or are not older
	for _, r := range rows {
		if was.ids[r.id] {
			after = was.seq
		} else if added, err := store.ParseTime(r.added); err != nil || added.Add(-clockSlack).Before(before) {
			before = added.Add(-clockSlack)
		}
	}
	removed, last, older := map[string]bool{}, was.seq, 0
	fresh := before.Before(time.Unix(1<<40, 0)) // there are rows that the reading before has not found in force
	err := audit.Newest(ctx, db, sandboxmcp.Namespace(ns), ActionRemoved, func(seq int64, at time.Time, metadata string) bool {
		last = max(last, seq)
		if older++; seq > after || !at.Before(before) {
			older = 0
		}
		if older > 0 && !fresh || older > olderRead {
			return false
		}
		for _, id := range removedBy(metadata) {
			removed[id] = true
		}
		return true
	})
	if err == nil {
		ids := map[string]bool{}
		for _, r := range rows {
			ids[r.id] = !removed[r.id] && !l.knows(r.id)
		}
		l.now[ns] = checked{ids, last}
	}
	return removed, err
}

// allRemoved returns the ids of all rows that were removed, as the audit record names them.
func allRemoved(ctx context.Context, db store.Querier) (map[string]bool, error) {
	removed := map[string]bool{}
	return removed, audit.All(ctx, db, ActionRemoved, func(_, metadata string, _ bool) {
		for _, id := range removedBy(metadata) {
			removed[id] = true
		}
	})
}

// Faults returns a sentence for each row that was forged, changed, or put back after it was removed. derive is as in
// [Config].
func Faults(ctx context.Context, db store.Querier, derive func(purpose string) ([]byte, error)) (faults []string, err error) {
	var unread int
	if err = db.QueryRowContext(ctx, countLarge).Scan(&unread); err != nil {
		return nil, err
	}
	if unread > 0 {
		faults = append(faults, fmt.Sprintf("%d rows of table packages are larger than a server makes them and were not read", unread))
	}
	all, err := (*look)(nil).read(ctx, db, store.NewRowMACs(derive, macPurpose), "")
	for n := range all {
		if reason := all[n].fault(); reason != "" {
			faults = append(faults, reason)
		}
	}
	return faults, err
}

// told logs the rows that are not in force, each once.
type told struct {
	store.Told

	log *slog.Logger
}

// all logs the rows that are not in force. Those of a release without MACs share one line.
func (t *told) all(rows []row) {
	var old []string
	for n := range rows {
		r := &rows[n]
		if r.state == whole || !t.New(r.namespace+"\x00"+r.language+"\x00"+r.digest) {
			continue
		}
		if reason := r.fault(); reason != "" {
			t.log.Error("packages in the database are not used", "reason", reason)
			continue
		}
		old = append(old, fmt.Sprintf("%.100q: %.100s %.300s", r.namespace, r.language, r.requested))
	}
	if len(old) > 0 {
		t.log.Warn("packages that an older release has installed have no MAC and are not used any more; install them again", "count", len(old), "packages", old[:min(len(old), 20)])
	}
}

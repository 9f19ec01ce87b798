package audit

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Bounds of the Limit of an AuditQuery.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// maxPage bounds the texts of a page, in bytes. Entries of servers have a few hundred.
const maxPage = 64 << 20

// List returns the entries of a namespace that match q, newest first unless q.OldestFirst
// is set. The page also has the total number of matches and the newest checkpoint.
func (l *Log) List(ctx context.Context, ns sandboxmcp.Namespace, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	if err := l.store.Settle(ctx); err != nil {
		return sandboxmcp.AuditPage{}, err
	}
	return List(ctx, l.store.DB(), ns, q)
}

// List does the same as [Log.List] for a database that is open for reading only.
func List(ctx context.Context, db *sql.DB, ns sandboxmcp.Namespace, q sandboxmcp.AuditQuery) (page sandboxmcp.AuditPage, err error) {
	if ns == "" {
		return page, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the audit needs a namespace")
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		return page, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "limit is %d; use 1 to %d", q.Limit, MaxLimit).
			WithHint("ask for fewer entries, and narrow the query by since and action")
	}
	count, list, args := listed(ns, q)
	page.Entries = []sandboxmcp.AuditEntry{}
	if err = db.QueryRowContext(ctx, count, args...).Scan(&page.Total); err != nil {
		return page, fmt.Errorf("count audit entries: %w", err)
	}
	if page.Head, err = Head(ctx, db); err != nil {
		return page, err
	}
	rows, err := db.QueryContext(ctx, list, append(args, cmp.Or(q.Limit, DefaultLimit))...)
	if err != nil {
		return page, fmt.Errorf("list audit entries: %w", err)
	}
	defer rows.Close()
	read := 0
	for rows.Next() {
		var r row
		if err := r.scan(rows); err != nil {
			return page, fmt.Errorf("list audit entries: %w", err)
		}
		if read += r.length(); read > maxPage {
			return page, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the entries have more than %d MiB", maxPage>>20).WithHint("ask for fewer entries")
		}
		e, err := r.entry()
		if err != nil {
			return page, fmt.Errorf("list audit entries: entry %d: %w", r.Seq, err)
		}
		page.Entries = append(page.Entries, e)
	}
	if err := rows.Err(); err != nil {
		return page, fmt.Errorf("list audit entries: %w", err)
	}
	return page, nil
}

// length returns the bytes of the longest texts of a row that was read.
func (r *row) length() int {
	n := len(r.ID) + len(r.Namespace) + len(r.RequestID) + len(r.SessionID) + len(r.Detail) + len(r.Actor)
	for _, text := range []*string{r.Usage, r.Metadata} {
		if text != nil {
			n += len(*text)
		}
	}
	return n
}

// Place is how far a reader of the record has come. The zero value is its beginning.
type Place struct {
	entry    entryPlace
	doubtful []int64 // positions before it whose entries were missing or changed when they were read
	last     bool    // entries after it were changed when they were read
}

// maxDoubtful bounds the positions in doubt. With more of them, a reader could not say what the record has, and fails.
const maxDoubtful = 1000

var errLost = fmt.Errorf("more than %d audit entries are missing or were changed; run `sandboxmcp audit verify`", maxDoubtful)

// Doubtful reports whether entries were missing or changed when they were read.
func (p Place) Doubtful() bool { return p.last || len(p.doubtful) > 0 }

// After reports whether the place is after another one.
func (p Place) After(other Place) bool { return p.entry.position > other.entry.position }

// Since calls each with the request id and the metadata of every entry with an action after a place, of all namespaces and in
// their order. It returns the place to go on from, also with an error. It uses no index: a writer of the database can make
// one that lacks an entry. So the first call reads the whole record. If the entry at the place is gone, Since begins anew.
//
// A writer could also change an entry before it is read and restore it afterwards. So later calls check the content of all new
// entries, and read those that were missing or changed again until they are as a server has written them.
func (l *Log) Since(ctx context.Context, db store.Querier, action string, after Place, each func(request, metadata string)) (Place, error) {
	return reader{db, l.fits, action, each}.since(ctx, after)
}

// fits reports whether an entry has the MAC of a server. Without a key it returns true.
func (l *Log) fits(position int64, hash, mac string) bool {
	l.reading.Lock()
	defer l.reading.Unlock()
	return l.macs == nil || l.macs.fits(position, hash, mac)
}

// All is [Log.Since] from the beginning of the record.
func All(ctx context.Context, db store.Querier, action string, each func(request, metadata string)) error {
	_, err := reader{db, func(int64, string, string) bool { return false }, action, each}.whole(ctx)
	return err
}

// reader reads the record for [Log.Since].
type reader struct {
	db     store.Querier
	fits   func(position int64, hash, mac string) bool
	action string
	each   func(request, metadata string)
}

func (r reader) since(ctx context.Context, after Place) (Place, error) {
	there := false
	if at := after.entry; at.position > 0 {
		var err error
		if there, err = has(ctx, r.db, selectHashAt, at.position, at.hash); err != nil {
			return after, fmt.Errorf("read audit entries: %w", err)
		}
	}
	if !there {
		return r.whole(ctx)
	}
	next := Place{entry: after.entry}
	for _, position := range after.doubtful {
		found, err := r.checked(ctx, selectAt, position, func(_ entryPlace, genuine bool) bool {
			if !genuine {
				next.doubtful = append(next.doubtful, position)
			}
			return true
		})
		if err != nil {
			return after, err
		}
		if found == 0 {
			next.doubtful = append(next.doubtful, position)
		}
	}
	lost := false
	_, err := r.checked(ctx, selectAfter, after.entry.position, func(at entryPlace, genuine bool) bool {
		if next.last = !genuine; next.last { // a writer of the database could add an entry far behind the end, and remove it once it was read
			return true
		}
		for position := next.entry.position + 1; position < at.position; position++ {
			if lost = len(next.doubtful) == maxDoubtful; lost {
				return false
			}
			next.doubtful = append(next.doubtful, position)
		}
		next.entry = at
		return true
	})
	if err == nil && lost {
		after.last = true
		return after, errLost
	}
	return next, err
}

// checked calls each for the entries of the action that a statement selects, and then with the place of every entry and
// whether it is as a server has written it. It ends when next returns false. It returns how many entries there were.
func (r reader) checked(ctx context.Context, query string, number int64, next func(at entryPlace, genuine bool) bool) (found int, err error) {
	rows, err := r.db.QueryContext(ctx, query, number)
	if err != nil {
		return 0, fmt.Errorf("read audit entries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e row
		var position int64
		var mac string
		if err := e.scan(placeFirst{rows, &position, &mac}); err != nil {
			return found, fmt.Errorf("read audit entries: %w", err)
		}
		found++
		if e.Action == r.action && e.Metadata != nil {
			r.each(e.RequestID, *e.Metadata)
		}
		if !next(entryPlace{position, e.Hash}, e.hash() == e.Hash && r.fits(position, e.Hash, mac)) {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return found, fmt.Errorf("read audit entries: %w", err)
	}
	return found, nil
}

// whole reads the record from its beginning, and checks no contents. The place is that of an entry that fits.
func (r reader) whole(ctx context.Context) (after Place, err error) {
	rows, err := r.db.QueryContext(ctx, selectSince, 0, r.action)
	if err != nil {
		return after, fmt.Errorf("read audit entries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var at entryPlace
		var mac, request, metadata string
		var wanted bool
		if err := rows.Scan(&at.position, &at.hash, &mac, &wanted, &request, &metadata); err != nil {
			return after, fmt.Errorf("read audit entries: %w", err)
		}
		if wanted {
			r.each(request, metadata)
		}
		if r.fits(at.position, at.hash, mac) {
			after = Place{entry: at}
		}
	}
	if err := rows.Err(); err != nil {
		return after, fmt.Errorf("read audit entries: %w", err)
	}
	return after, nil
}

// Newest calls each with the number, the time and the metadata of every entry of a namespace and an action, newest first, until
// it returns false. The action may not be that of runs. An entry whose time cannot be read is taken for a new one.
func Newest(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace, action string, each func(seq int64, at time.Time, metadata string) bool) error {
	rows, err := db.QueryContext(ctx, selectNewestMetadata, ns, action)
	if err != nil {
		return fmt.Errorf("read audit entries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var timestamp, metadata string
		if err := rows.Scan(&seq, &timestamp, &metadata); err != nil {
			return fmt.Errorf("read audit entries: %w", err)
		}
		at, err := time.Parse(timeFormat, timestamp)
		if err != nil {
			at = time.Unix(1<<40, 0)
		}
		if !each(seq, at, metadata) {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read audit entries: %w", err)
	}
	return nil
}

// Written is what [Log.Genuine] tells of an entry.
type Written struct{ Phase, SessionID, Metadata string }

// Genuine calls each for the entries of a namespace with the query's action, from the query's time on, oldest first. It leaves
// out entries that no server has written, or that were changed since: their hash or, if the record is signed, their MAC is
// wrong. The action may not be that of runs, whose entries have no index. The query's limit has no effect.
func (l *Log) Genuine(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace, q sandboxmcp.AuditQuery, each func(e Written)) error {
	var m *macs
	if l.sealer != nil {
		var err error
		if m, err = newMACs(l.sealer.signer); err != nil {
			return err
		}
	}
	rows, err := db.QueryContext(ctx, selectOfAction, ns, q.Action, formatTime(q.Since))
	if err != nil {
		return fmt.Errorf("read audit entries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var position int64
		var mac string
		if err := r.scan(placeFirst{rows, &position, &mac}); err != nil {
			return fmt.Errorf("read audit entries: %w", err)
		}
		if r.hash() == r.Hash && (m == nil || m.fits(position, r.Hash, mac)) && r.Metadata != nil {
			each(Written{r.Phase, r.SessionID, *r.Metadata})
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read audit entries: %w", err)
	}
	return nil
}

// entry returns the row as the API shows it.
func (r *row) entry() (sandboxmcp.AuditEntry, error) {
	e := sandboxmcp.AuditEntry{
		ID: r.ID, Seq: r.Seq, Action: r.Action, Phase: r.Phase,
		RequestID: sandboxmcp.RequestID(r.RequestID), SessionID: sandboxmcp.SessionID(r.SessionID),
		Language: sandboxmcp.Language(r.Language), DurationMS: r.DurationMS, Detail: r.Detail,
		Namespace: sandboxmcp.Namespace(r.Namespace), Actor: r.Actor, Prev: r.Prev, Hash: r.Hash,
	}
	var err error
	if e.Timestamp, err = time.Parse(timeFormat, r.Timestamp); err != nil {
		return e, err
	}
	if r.ExitCode != nil {
		n := int(*r.ExitCode)
		e.ExitCode = &n
	}
	if r.Success != nil {
		ok := *r.Success != 0
		e.Success = &ok
	}
	if r.Usage != nil {
		if err := json.Unmarshal([]byte(*r.Usage), &e.Usage); err != nil {
			return e, fmt.Errorf("resource_usage: %w", err)
		}
	}
	if r.Metadata != nil {
		if err := json.Unmarshal([]byte(*r.Metadata), &e.Metadata); err != nil {
			return e, fmt.Errorf("metadata: %w", err)
		}
	}
	return e, nil
}

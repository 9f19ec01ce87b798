package audit

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
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

// Genuine calls each for the entries of a namespace with one of two actions, newest first, until it returns false. It uses no index of
// namespaces or actions, so its time grows with the number of entries since the last one that is wanted. It leaves out entries that no
// server has written, or that were changed since: their hash or, if the record is signed, their MAC is wrong.
func (l *Log) Genuine(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace, actions [2]string, each func(e Written) bool) error {
	more := true
	for from, before := int64(0), int64(math.MaxInt64); more; before = from {
		if err := db.QueryRowContext(ctx, selectBatch, before).Scan(&from); err != nil {
			return fmt.Errorf("read audit entries: %w", err)
		}
		if from == 0 {
			return nil
		}
		err := l.checked(ctx, db, func(_ int64, e *row, genuine bool) bool {
			more = !genuine || e.Metadata == nil || each(Written{e.Phase, e.SessionID, *e.Metadata})
			return more
		}, selectOfAction, from, before, ns, actions[0], actions[1])
		if err != nil {
			return err
		}
	}
	return nil
}

// checked calls each for the entries that a statement selects, with their positions and whether they are as a server has
// written them, until it returns false. If the record is not signed, their MACs do not count.
func (l *Log) checked(ctx context.Context, db store.Querier, each func(position int64, e *row, genuine bool) bool, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read audit entries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e row
		var position int64
		var mac string
		if err := e.scan(placeFirst{rows, &position, &mac}); err != nil {
			return fmt.Errorf("read audit entries: %w", err)
		}
		if !each(position, &e, e.hash() == e.Hash && l.fits(position, e.Hash, mac)) {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read audit entries: %w", err)
	}
	return nil
}

// fits reports whether an entry has the MAC of a server. Without a key it returns true.
func (l *Log) fits(position int64, hash, mac string) bool {
	l.reading.Lock()
	defer l.reading.Unlock()
	return l.macs == nil || l.macs.fits(position, hash, mac)
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
	if d := r.DurationMS; d != nil && (math.IsInf(*d, 0) || math.IsNaN(*d)) { // a writer of the database has changed it, and JSON has no form of it
		e.DurationMS = nil
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

package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of [Query] Limit.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Query says which entries are wanted.
type Query struct {
	Namespace sandboxmcp.Namespace // required: a tenant sees its own entries only
	Action    string               // empty: every action
	Since     time.Time            // entries of this time and later; zero: all
	Limit     int                  // 0: DefaultLimit; more than MaxLimit is MaxLimit
}

// List returns the newest entries that q asks for, newest first, and how many
// there are in all, without the limit.
func (l *Log) List(ctx context.Context, q Query) (entries []sandboxmcp.AuditEntry, total int, err error) {
	if q.Namespace == "" {
		return nil, 0, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the audit is asked for without a namespace")
	}
	limit := q.Limit
	switch {
	case limit <= 0:
		limit = DefaultLimit
	case limit > MaxLimit:
		limit = MaxLimit
	}
	where, args := "namespace = ?", []any{string(q.Namespace)}
	if q.Action != "" {
		where, args = where+" AND action = ?", append(args, q.Action)
	}
	if !q.Since.IsZero() {
		where, args = where+" AND timestamp >= ?", append(args, formatTime(q.Since))
	}
	db := l.store.DB()
	if err = db.QueryRowContext(ctx, `SELECT count(*) FROM audit WHERE `+where, args...).Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("count audit entries: %w", err)
	}
	list := `SELECT ` + columns + ` FROM audit WHERE ` + where + ` ORDER BY seq DESC LIMIT ?` //nolint:gosec // all parts are constants
	rows, err := db.QueryContext(ctx, list, append(args, limit)...)
	if err != nil {
		return nil, 0, fmt.Errorf("list audit entries: %w", err)
	}
	defer rows.Close()
	entries = []sandboxmcp.AuditEntry{}
	for rows.Next() {
		var r row
		if err := r.scan(rows); err != nil {
			return nil, 0, fmt.Errorf("list audit entries: %w", err)
		}
		e, err := r.entry()
		if err != nil {
			return nil, 0, fmt.Errorf("list audit entries: entry %d: %w", r.Seq, err)
		}
		entries = append(entries, e)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, fmt.Errorf("list audit entries: %w", err)
	}
	return entries, total, nil
}

// entry is the row in the vocabulary's terms.
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

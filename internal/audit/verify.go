package audit

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/sandboxmcp/sandboxmcp"
)

// Report is what walking a chain came to.
type Report struct {
	Namespace sandboxmcp.Namespace `json:"namespace"`
	Entries   int64                `json:"entries"` // sound entries from the first on
	Head      string               `json:"head"`    // hash of the last of them; 64 zeros when there are none
	Bad       *Fault               `json:"bad"`     // the first row that is not what it has to be; nil: the chain is sound
}

// Fault is the first row that breaks a chain.
type Fault struct {
	Row    int64  `json:"row"` // SQLite's rowid
	Seq    int64  `json:"seq"` // as it stands in the row
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Verify walks the chain of a namespace from its first entry, over one state of
// the database, and stops at the first row that is not what it has to be: one
// that was changed, moved, put in, or that follows one that was removed. It
// cannot see that entries are missing at the end.
//
// The error tells that the record could not be read, never that it is unsound.
func Verify(ctx context.Context, db *sql.DB, ns sandboxmcp.Namespace) (Report, error) {
	rep := Report{Namespace: ns, Head: zeroHash}
	rows, err := db.QueryContext(ctx, `SELECT rowid, `+columns+` FROM audit WHERE namespace = ? ORDER BY seq, rowid`, string(ns))
	if err != nil {
		return rep, fmt.Errorf("verify the audit of %s: %w", ns, err)
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var rowid int64
		if err := r.scan(rowidFirst{rows, &rowid}); err != nil {
			// Not even the types are ours: the table was rebuilt.
			rep.Bad = &Fault{Row: rowid, Seq: r.Seq, ID: r.ID, Reason: fmt.Sprintf("the row after entry %d cannot be read: %v", rep.Entries, err)}
			return rep, nil
		}
		if reason := r.fault(rep.Entries+1, rep.Head); reason != "" {
			rep.Bad = &Fault{Row: rowid, Seq: r.Seq, ID: r.ID, Reason: reason}
			return rep, nil
		}
		rep.Entries, rep.Head = r.Seq, r.Hash
	}
	if err := rows.Err(); err != nil {
		return rep, fmt.Errorf("verify the audit of %s: %w", ns, err)
	}
	return rep, nil
}

// Namespaces lists the namespaces that have entries, in the order of their names.
func Namespaces(ctx context.Context, db *sql.DB) ([]sandboxmcp.Namespace, error) {
	rows, err := db.QueryContext(ctx, `SELECT DISTINCT namespace FROM audit ORDER BY namespace`)
	if err != nil {
		return nil, fmt.Errorf("list the audit's namespaces: %w", err)
	}
	defer rows.Close()
	all := []sandboxmcp.Namespace{}
	for rows.Next() {
		var ns string
		if err := rows.Scan(&ns); err != nil {
			return nil, fmt.Errorf("list the audit's namespaces: %w", err)
		}
		all = append(all, sandboxmcp.Namespace(ns))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the audit's namespaces: %w", err)
	}
	return all, nil
}

// rowidFirst scans a rowid in front of the columns.
type rowidFirst struct {
	rows  *sql.Rows
	rowid *int64
}

// Scan reads the rowid and then into dest.
func (s rowidFirst) Scan(dest ...any) error {
	return s.rows.Scan(append([]any{s.rowid}, dest...)...)
}

// fault tells what is wrong with the row as entry seq after one with the hash
// prev; empty: nothing is.
func (r *row) fault(seq int64, prev string) string {
	switch {
	case r.Seq > seq:
		return fmt.Sprintf("entry %d is missing: the row after entry %d is entry %d", seq, seq-1, r.Seq)
	case r.Seq < seq:
		return fmt.Sprintf("entry %d stands there more than once", r.Seq)
	case r.Prev != prev:
		return fmt.Sprintf("prev of entry %d is not the hash of entry %d", seq, seq-1)
	case r.Success != nil && *r.Success != 0 && *r.Success != 1:
		return fmt.Sprintf("success of entry %d is neither 0 nor 1", seq)
	case !canonical(r.Metadata), !canonical(r.Usage):
		return fmt.Sprintf("metadata or resource_usage of entry %d is not in canonical form", seq)
	case r.Hash != r.hash():
		return fmt.Sprintf("entry %d does not have the hash that its content gives", seq)
	}
	return ""
}

func canonical(text *string) bool {
	if text == nil {
		return true
	}
	s, err := canonicalText([]byte(*text))
	return err == nil && s == *text
}

package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// maxRow bounds what is read of a row, in bytes. An entry is smaller; see maxEntry.
const maxRow = 16 << 20

// maxFaults is the largest number of faults in a report.
const maxFaults = 50

// Evidence holds the key and the files that Verify compares a record with.
type Evidence struct {
	Key            string                            // name of the key, for the report
	Open           func(note string) (string, error) // checks a note and returns its text; nil: no key
	Signer         Signer                            // has the private key, so that MACs are checked; nil: they are not
	HeadFile       string                            // see [Config]
	CheckpointFile string                            // see [Config]

	// Schema compares the tables of the database with those that it should have; nil: they are not compared.
	Schema func(context.Context, store.Querier) ([]store.Difference, error)

	// Rows check the rows of other tables that have MACs, in this order.
	Rows []RowFaults
}

// RowFaults returns a sentence for each row of a table that was forged, changed or put back.
type RowFaults func(ctx context.Context, db store.Querier) ([]string, error)

// Keyed returns functions whose keys are derived from the signing key by derive.
func Keyed(derive func(purpose string) ([]byte, error), all ...func(context.Context, store.Querier, func(string) ([]byte, error)) ([]string, error)) []RowFaults {
	keyed := make([]RowFaults, len(all))
	for i, f := range all {
		keyed[i] = func(ctx context.Context, db store.Querier) ([]string, error) { return f(ctx, db, derive) }
	}
	return keyed
}

// Verify checks the whole record in one state of the database: every entry against its
// hash, the chain of each namespace, the order of all entries, and the tree over them
// against every checkpoint inside and outside the database. If db is nil, there is no
// record. With a Signer, it also checks the MACs of entries.
//
// An error says that something could not be read. Faults are in the report.
func Verify(ctx context.Context, db *sql.DB, with Evidence) (sandboxmcp.AuditReport, error) {
	v := &verifier{with: with, signed: map[int64][]signed{}, chains: map[string]*chain{}, report: sandboxmcp.AuditReport{
		Key: with.Key, Head: EmptyHead(), Namespaces: []sandboxmcp.AuditNamespace{}, Faults: []sandboxmcp.AuditFault{},
	}}
	var err error
	if with.Signer != nil {
		v.macs, err = newMACs(with.Signer)
	}
	// The files are read first: each of their checkpoints was committed to the database
	// before.
	if err == nil {
		err = v.outside()
	}
	if err == nil && db != nil {
		err = v.inside(ctx, db)
	}
	if err != nil {
		return v.report, fmt.Errorf("verify the audit: %w", err)
	}
	v.end()
	return v.report, nil
}

// verifier is a Verify in progress.
type verifier struct {
	with   Evidence
	macs   *macs // nil: MACs are not checked
	report sandboxmcp.AuditReport

	signed   map[int64][]signed // checkpoints by their size
	apart    []signed           // checkpoints outside the database
	most     signed             // the checkpoint over most entries
	chains   map[string]*chain
	order    []string // names of the chains in the order of their first entries
	tree     edge
	findings map[finding]bool // those that were reported
	unopened bool             // a checkpoint exists, but no key to check it
	unread   bool             // tables are others, or have too large rows, and were not read to their end
	rows     []string         // a sentence for each faulty row of another table
	broken   bool             // the entries do not match a checkpoint, so later checkpoints cannot match

	from   int64     // the first position whose entry must have a MAC; 0: not known yet
	last   int64     // position of the last row that was read
	sound  int64     // entries under the last checkpoint that matches
	after  place     // the first entry after them
	tailAt time.Time // its timestamp
}

// signed is a checkpoint with a valid signature.
type signed struct {
	statement
	where  string
	inside bool // stored in the database
}

// chain is the last entry of a namespace that was read so far.
type chain struct {
	entries, seq int64
	hash         string
}

// place identifies an entry.
type place struct {
	row, seq int64
	ns, id   string
}

func (v *verifier) fault(kind string, at place, reason string) {
	if len(v.report.Faults) < maxFaults {
		v.report.Faults = append(v.report.Faults, sandboxmcp.AuditFault{
			Kind: kind, Namespace: sandboxmcp.Namespace(at.ns), Seq: at.seq, Row: at.row, ID: at.id, Reason: reason,
		})
	}
}

// note returns the statement of a note. An invalid note is added to the faults.
func (v *verifier) note(origin, where, text string) (statement, bool) {
	if v.with.Open == nil {
		v.unopened = true // end reports this once
		return statement{}, false
	}
	s, err := openStatement(v.with.Open, origin, text)
	if err != nil {
		v.fault(kindCheckpoint, place{}, where+": "+err.Error())
		return s, false
	}
	return s, true
}

func (v *verifier) expect(s signed) {
	v.signed[s.size] = append(v.signed[s.size], s)
	if !s.inside {
		v.apart = append(v.apart, s)
	}
	if s.size > v.most.size {
		v.most = s
	}
}

// outside reads the checkpoints outside the database.
func (v *verifier) outside() error {
	if v.with.HeadFile != "" {
		text, err := readHead(v.with.HeadFile)
		if err != nil {
			return err
		}
		if text != "" {
			if s, ok := v.note(originCheckpoint, "the newest checkpoint, in "+v.with.HeadFile, text); ok {
				v.expect(signed{s, "the newest checkpoint beside the key,", false})
			}
		}
	}
	if err := v.outsideFault(); err != nil {
		return err
	}
	if v.with.CheckpointFile == "" {
		return nil
	}
	v.report.Second = &sandboxmcp.AuditSecond{File: v.with.CheckpointFile}
	b, err := plainfile.Read(v.with.CheckpointFile, maxPlace)
	if errors.Is(err, fs.ErrNotExist) {
		v.fault(kindCheckpoint, place{}, "the second place "+v.with.CheckpointFile+" is missing")
		return nil
	}
	if err != nil {
		return err
	}
	seen := map[string]bool{} // a writer of the file can repeat a note any number of times
	for i, text := range splitNotes(string(b)) {
		v.report.Second.Notes++
		if seen[text] {
			continue
		}
		seen[text] = true
		where := fmt.Sprintf("note %d of the second place", i+1)
		if isFinding(text) {
			v.finding(where, text)
			continue
		}
		if s, ok := v.note(originCheckpoint, where, text); ok {
			v.expect(signed{s, where, false})
			v.report.Second.Size = max(v.report.Second.Size, s.size)
		}
	}
	return nil
}

// inside reads the database in one transaction.
func (v *verifier) inside(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	restore, err := store.Bound(conn, maxRow)
	if err != nil {
		return err
	}
	defer restore()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	readable, err := v.schema(ctx, tx)
	if err != nil || !readable {
		return err
	}
	if err = v.dropped(ctx, tx); err != nil {
		return v.tooLarge(err, kindCheckpoint, place{}, "a statement about dropped entries")
	}
	if err = v.checkpoints(ctx, tx); err != nil {
		return v.tooLarge(err, kindCheckpoint, place{}, fmt.Sprintf("a checkpoint after the one over %d entries", v.most.size))
	}
	v.from = v.most.macs
	v.compare()
	if err = v.entries(ctx, tx); err != nil {
		last := max(v.last, v.droppedSize())
		return v.tooLarge(err, kindUnreadable, place{row: last + 1}, fmt.Sprintf("the row after row %d", last))
	}
	for _, faultsOf := range v.with.Rows {
		faults, err := faultsOf(ctx, tx)
		v.rows = append(v.rows, faults...)
		if store.TooLarge(err) { // the connection may be lost
			v.rows = append(v.rows, fmt.Sprintf("a row of another table has more than %d MiB and was not read, nor was what follows it", maxRow>>20))
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tooLarge makes a fault of an error because a row is too large. Nothing is read after that.
func (v *verifier) tooLarge(err error, kind string, at place, what string) error {
	if !store.TooLarge(err) {
		return err
	}
	v.unread = true
	v.fault(kind, at, fmt.Sprintf("%s has more than %d MiB and was not read, nor was what follows it", what, maxRow>>20))
	return nil
}

// schema compares the schema. It reports whether the tables can be read: what is in their place may
// have rows without end.
func (v *verifier) schema(ctx context.Context, tx *sql.Tx) (readable bool, err error) {
	if v.with.Schema == nil {
		return true, nil
	}
	all, err := v.with.Schema(ctx, tx)
	if store.TooLarge(err) { // in SQLite the transaction goes on, and the rows tell which one it is
		v.fault(kindSchema, place{}, fmt.Sprintf("the indexes of the audit could not be checked: a row has more than %d MiB", maxRow>>20))
		err = nil
	}
	readable = true
	for _, d := range all {
		v.fault(kindSchema, place{}, d.Reason)
		readable = readable && !d.Table
	}
	v.unread = !readable
	return readable, err
}

// checkpoints reads the checkpoints of the database.
func (v *verifier) checkpoints(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, selectCheckpoints)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c checkpoint
		if err := rows.Scan(&c.size, &c.note, &c.edge); err != nil {
			v.fault(kindCheckpoint, place{}, fmt.Sprintf("a checkpoint after the one over %d entries cannot be read: %v", v.most.size, err))
			return nil //nolint:nilerr // it is a finding
		}
		v.report.Checkpoints++
		where := fmt.Sprintf("the checkpoint over %d entries", c.size)
		s, ok := v.note(originCheckpoint, where, c.note)
		if !ok {
			continue
		}
		e, err := parseEdge(c.size, c.edge)
		switch {
		case s.size != c.size:
			v.fault(kindCheckpoint, place{}, fmt.Sprintf("%s was signed over %d", where, s.size))
		case err != nil:
			v.fault(kindCheckpoint, place{}, where+": "+err.Error())
		case e.root() != s.root:
			v.fault(kindCheckpoint, place{}, where+": the edge of its tree is not that of what was signed")
		}
		v.expect(signed{s, "the checkpoint in the database", true})
	}
	return rows.Err()
}

// entries checks all entries in the order of their positions.
func (v *verifier) entries(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, selectEntries)
	if err != nil {
		return err
	}
	defer rows.Close()
	next := v.tree.size + 1
	for ; rows.Next(); next++ {
		var r row
		var position int64
		var mac string
		if err := r.scan(placeFirst{rows, &position, &mac}); err != nil {
			// The columns have other types than the schema's, so the table was rebuilt.
			v.broken = true
			v.fault(kindUnreadable, place{row: position, ns: r.Namespace, seq: r.Seq, id: r.ID}, fmt.Sprintf("the row cannot be read: %v", err))
			continue
		}
		at := place{row: position, ns: r.Namespace, seq: r.Seq, id: r.ID}
		if v.entry(&r, at, next) {
			v.checkMAC(&r, at, mac)
		}
		next, v.last = position, position
	}
	return rows.Err()
}

func missingRows(first, last int64) string {
	if first == last {
		return fmt.Sprintf("row %d is missing", first)
	}
	return fmt.Sprintf("rows %d to %d are missing", first, last)
}

// checkMAC checks the MAC of an entry whose hash is right. An entry without one may precede the first position
// that must have one.
func (v *verifier) checkMAC(r *row, at place, mac string) {
	if v.macs == nil {
		return
	}
	if v.from == 0 && mac != "" { // no checkpoint of this release yet
		v.from = at.row
	}
	if v.from != 0 && (mac != "" || at.row >= v.from) && !v.macs.fits(at.row, r.Hash, mac) {
		v.fault(kindForged, at, fmt.Sprintf("entry %d %s", r.Seq, notOurs(mac)))
	}
}

// entry checks an entry against its chain and adds it to the tree. next is the expected
// position of its row. It reports whether the entry is right.
func (v *verifier) entry(r *row, at place, next int64) (sound bool) {
	c := v.chains[r.Namespace]
	if c == nil {
		c = &chain{hash: zeroHash}
		v.chains[r.Namespace] = c
		v.order = append(v.order, r.Namespace)
	}
	hash := r.hash()
	kind, reason := r.fault(c.seq+1, c.hash, hash)
	switch {
	case at.row == next && kind == kindDeleted:
		kind = kindReordered // no row is missing
	case at.row == next:
	case kind == "":
		kind, reason = kindDeleted, missingRows(next, at.row-1)
	default:
		reason += "; " + missingRows(next, at.row-1)
	}
	if kind != "" {
		v.broken = true
		v.fault(kind, at, reason)
	}
	if c.entries++; r.Seq > c.seq {
		c.seq, c.hash = r.Seq, r.Hash
	}
	v.report.Entries++
	leaf, err := leafOf(hash)
	if err != nil { // cannot happen: the hash was computed above
		v.broken = true
		return false
	}
	if v.tree.size == v.sound {
		v.after, v.tailAt = at, time.Time{}
		if t, err := time.Parse(timeFormat, r.Timestamp); err == nil {
			v.tailAt = t
		}
	}
	v.tree.add(leaf)
	v.compare()
	return kind == ""
}

// compare compares the tree with the checkpoints of its size. After a fault in an entry no
// checkpoint can match, and that fault was already reported.
func (v *verifier) compare() {
	all := v.signed[v.tree.size]
	if len(all) == 0 || v.broken {
		return
	}
	root := v.tree.root()
	for _, s := range all {
		if s.root != root {
			v.broken = true
			v.fault(kindRewritten, v.after, fmt.Sprintf("the entries do not fit %s over %d of them, signed at %s: between this entry and row %d something is not what was signed",
				s.where, s.size, formatTime(s.at), s.size))
			return
		}
	}
	v.sound = v.tree.size
	v.report.Head = all[0].head()
}

// end reports the faults that can only be found after everything was read.
func (v *verifier) end() {
	rep := &v.report
	if v.unread {
		return
	}
	if v.unopened || v.with.Open == nil && rep.Entries > 0 {
		v.fault(kindKey, place{}, "the public key is missing: no checkpoint can be checked")
	}
	have := max(v.last, v.droppedSize())
	if v.most.size > have {
		v.broken = true
		v.fault(kindTruncated, place{row: have + 1}, fmt.Sprintf("%s says that there were %d entries, signed at %s: the last %d are missing",
			v.most.where, v.most.size, formatTime(v.most.at), v.most.size-have))
	}
	for _, s := range v.apart {
		kept := slices.ContainsFunc(v.signed[s.size], func(o signed) bool { return o.inside && o.root == s.root })
		if !kept && s.size > v.droppedSize() && len(rep.Faults) == 0 {
			v.fault(kindCheckpoint, place{}, fmt.Sprintf("%s over %d entries is not in the database, where it was before it was written there", s.where, s.size))
		}
	}
	covered := max(v.sound, v.droppedSize())
	if v.broken { // changed entries were signed
		covered = max(covered, min(v.most.size, v.tree.size))
	}
	if rep.Tail.Entries = v.tree.size - covered; rep.Tail.Entries > 0 && !v.broken {
		if !v.tailAt.IsZero() {
			rep.Tail.Since = &v.tailAt
		}
		if rep.Tail.Entries > alarmTail && !v.broken && v.with.Open != nil {
			v.fault(kindUnsigned, v.after, fmt.Sprintf("%d entries from this one on have no checkpoint; a server leaves at most %d without one", rep.Tail.Entries, alarmTail))
		}
	}
	for _, name := range v.order {
		c := v.chains[name]
		rep.Namespaces = append(rep.Namespaces, sandboxmcp.AuditNamespace{Namespace: sandboxmcp.Namespace(name), Entries: c.entries, Seq: c.seq, Hash: c.hash})
	}
	for _, reason := range v.rows {
		v.fault(kindForged, place{}, reason)
	}
	rep.OK = len(rep.Faults) == 0
}

// Kinds of an AuditFault.
const (
	kindEdited     = "edited"     // a row's hash does not match its content
	kindDeleted    = "deleted"    // a row between two others is missing
	kindRepeated   = "repeated"   // a row occurs twice
	kindReordered  = "reordered"  // a row is in the wrong place
	kindTruncated  = "truncated"  // rows at the end are missing
	kindRewritten  = "rewritten"  // the hashes of the chain are valid, but the rows are not those that were signed
	kindUnsigned   = "unsigned"   // too many rows have no checkpoint
	kindCheckpoint = "checkpoint" // a checkpoint was not signed by this server, or cannot be read
	kindKey        = "key"        // the key is missing
	kindUnreadable = "unreadable" // a row has values of the wrong types
	kindSchema     = "schema"     // a table, an index or a trigger is not as a server makes it
	kindFound      = "found"      // a server has found a fault while it ran, of which the database may show nothing
	kindForged     = "forged"     // an entry or a row of another table was not written there by a server with the key, or was put back
)

// placeFirst scans a position and a MAC in front of the columns.
type placeFirst struct {
	rows     *sql.Rows
	position *int64
	mac      *string
}

// Scan reads the position and the MAC, and then into dest.
func (s placeFirst) Scan(dest ...any) error {
	return s.rows.Scan(append([]any{s.position, s.mac}, dest...)...)
}

// fault checks the row as entry seq after an entry with the hash prev. hash is the computed
// hash of the row's content. It returns empty strings if the row is valid.
func (r *row) fault(seq int64, prev, hash string) (kind, reason string) {
	switch {
	case r.Seq > seq:
		return kindDeleted, fmt.Sprintf("entry %d is missing: the row after entry %d is entry %d", seq, seq-1, r.Seq)
	case r.Seq == seq-1:
		return kindRepeated, fmt.Sprintf("entry %d is there more than once", r.Seq)
	case r.Seq < seq:
		return kindReordered, fmt.Sprintf("entry %d stands after entry %d", r.Seq, seq-1)
	case r.Prev != prev:
		return kindReordered, fmt.Sprintf("prev of entry %d is not the hash of entry %d", seq, seq-1)
	case r.Success != nil && *r.Success != 0 && *r.Success != 1:
		return kindEdited, fmt.Sprintf("success of entry %d is neither 0 nor 1", seq)
	case !canonical(r.Metadata), !canonical(r.Usage):
		return kindEdited, fmt.Sprintf("metadata or resource_usage of entry %d is not in canonical form", seq)
	case r.Hash != hash:
		return kindEdited, fmt.Sprintf("entry %d does not have the hash of its content", seq)
	}
	return "", ""
}

func canonical(text *string) bool {
	if text == nil {
		return true
	}
	s, err := canonicalText([]byte(*text))
	return err == nil && s == *text
}

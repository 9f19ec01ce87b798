package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Log is the record in a state directory. Its methods may be called concurrently, and
// several processes may append to the same record.
type Log struct {
	store  *store.Store
	now    func() time.Time
	sealer *sealer   // nil: nothing is signed
	notes  *noteMACs // nil: nothing is signed
	ends   ends      // used by transactions only

	reading sync.Mutex
	macs    *macs // used under reading
}

// Config configures a [Log]. Every field may be empty.
type Config struct {
	Now            func() time.Time // nil: the clock of the machine
	Signer         Signer           // signs checkpoints, and its secrets make the MACs of entries; nil: neither
	HeadFile       string           // file beside the key that has the newest checkpoint; see [HeadFile]; empty: no file
	CheckpointFile string           // file to which all checkpoints are appended, in messages the second place; empty: no file
	Logger         *slog.Logger
}

// Open returns the record in s. If a Signer is configured, new entries get MACs and signed
// checkpoints. The caller then calls Close before it closes the store, and Publish after
// that. Open fails if the checkpoint file cannot be written to.
func Open(ctx context.Context, s *store.Store, c Config) (*Log, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{store: s, now: c.Now}
	if c.Signer == nil {
		return l, nil
	}
	if err := openSecond(c.CheckpointFile); err != nil {
		return nil, err
	}
	var err, err2, err3 error
	l.ends.macs, err = newMACs(c.Signer)
	l.macs, err2 = newMACs(c.Signer)
	l.notes, err3 = newNoteMACs(c.Signer)
	if err = errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	at := places{head: c.HeadFile, second: c.CheckpointFile, seen: &atomic.Pointer[string]{}}
	found := &findings{places: at, signer: c.Signer, now: c.Now, log: c.Logger}
	l.ends.mark = &mark{open: c.Signer.OpenNote, found: found}
	s.Follow(l.ends.mark)
	l.sealer = newSealer(ctx, s, c, &l.ends, found)
	return l, nil
}

// Close puts the entries of this process under a checkpoint, unless another process has
// done so, and stops the sealing. Call it once, after the last append.
func (l *Log) Close(ctx context.Context) {
	if l.sealer != nil {
		l.sealer.close(ctx)
	}
}

// Op returns the step that appends e. Use it in the Update whose other steps must not
// happen without the entry. It sets Seq, Prev and Hash of e, and ID and Timestamp if they
// are empty. These fields are valid once the Update has returned nil. Do not access e
// before.
//
// The step fails if e has no action, no namespace or an unknown phase, if its metadata
// is not JSON, or if its time is not in the years from 0 to 9999. The caller must then not perform the action.
func (l *Log) Op(e *sandboxmcp.AuditEntry) store.Op {
	r, err := newRow(e)
	return func(ctx context.Context, tx *sql.Tx) error {
		if err != nil {
			return appendError(err)
		}
		at := e.Timestamp
		if at.IsZero() {
			at = l.now()
		}
		if err := checkTime(at); err != nil {
			return appendError(err)
		}
		at = at.UTC().Round(0)
		r.Timestamp = formatTime(at)
		if err := l.append(ctx, tx, r); err != nil {
			return err
		}
		e.ID, e.Seq, e.Timestamp, e.Prev, e.Hash = r.ID, r.Seq, at, r.Prev, r.Hash
		return nil
	}
}

// append appends a row and seals the record if that is due.
func (l *Log) append(ctx context.Context, tx *sql.Tx, r *row) error {
	position, err := l.ends.append(ctx, tx, r)
	if err == nil && l.sealer != nil {
		err = l.sealer.appended(ctx, tx, position, &l.ends)
	}
	return appendError(err)
}

func appendError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("append to the audit: %w", err)
}

// Append appends e in a separate Update and returns the recorded entry. See [Log.Op].
func (l *Log) Append(ctx context.Context, e sandboxmcp.AuditEntry) (sandboxmcp.AuditEntry, error) {
	if err := l.store.Update(ctx, l.Op(&e)); err != nil {
		return sandboxmcp.AuditEntry{}, err
	}
	return e, nil
}

// Signing says whether new entries get checkpoints, and these get to the files outside the database.
func (l *Log) Signing() sandboxmcp.AuditSigning {
	if l.sealer == nil {
		return sandboxmcp.AuditSigning{Reason: "there is no signing key"}
	}
	if since := l.store.Stuck(); !since.IsZero() {
		since = since.UTC().Round(0)
		return sandboxmcp.AuditSigning{Reason: "the newest records cannot be brought into the database; the server's log has the cause", Since: &since}
	}
	f := cmp.Or(l.sealer.fault.Load(), l.sealer.schema.Load(), l.sealer.hidden.Load(), l.sealer.compare.fault.Load(), l.sealer.unwritten.Load())
	if f == nil {
		return sandboxmcp.AuditSigning{Signed: true}
	}
	since := f.since.UTC().Round(0)
	return sandboxmcp.AuditSigning{Reason: f.reason, Since: &since}
}

// CheckSchema compares the tables of the database with those that a server makes, and keeps the first difference for
// [Log.Signing]. The server signs on: what the tables have is checked anyway. It reads no rows, and does nothing once there was a
// difference. It also keeps that the comparison has failed twice in a row, until there is one: a writer of the database can make each fail.
func (l *Log) CheckSchema(ctx context.Context) error {
	if l.sealer == nil || l.sealer.schema.Load() != nil {
		return nil
	}
	all, err := l.store.Changed(ctx)
	l.sealer.compare.tried(err, &fault{reason: "the tables of the audit cannot be compared with those of a server, which is tried again; the server's log has the cause", since: l.now()})
	if err != nil || len(all) == 0 {
		return err
	}
	l.sealer.schema.Store(&fault{reason: "the tables of the audit were changed: " + all[0].Reason, since: l.now()})
	l.sealer.log.Error("the tables of the audit were changed; run `sandboxmcp audit verify`", "differences", len(all), "first", all[0].Reason)
	return nil
}

// signed returns how many entries have a checkpoint, as far as this process knows. It is 0 if none of them must have a MAC: a
// [Reader] comes to no entry without one.
func (l *Log) signed() int64 {
	if l.sealer == nil {
		return 0
	}
	c := l.sealer.fresh.Load()
	if c == nil {
		return 0
	}
	if s, err := unchecked(c.note); err != nil || s.macs == 0 || s.macs > c.size {
		return 0
	}
	return c.size
}

// tellHidden keeps for [Log.Signing] that an entry is missing where later ones are, or was changed. The server signs on: if the
// entry is also missing in a transaction that signs, the sealer finds that by itself. It may be hidden only from connections that read.
// Those to a database in memory also read what is undone later, and nothing else can write that.
func (l *Log) tellHidden(position int64) {
	if l.sealer == nil || l.store.Path() == store.MemoryPath {
		return
	}
	reason := fmt.Sprintf("row %d of the audit is missing or was changed where this server reads the record, so it may not know what was revoked", position)
	if l.sealer.hidden.CompareAndSwap(nil, &fault{reason: reason, since: l.now()}) {
		l.sealer.log.Error("an entry of the audit cannot be read; run `sandboxmcp audit verify`", "row", position)
	}
}

// Publish writes the newest checkpoint to the head file and the checkpoint file. Call it
// after the store is closed: closing usually syncs the database, and Publish would have to
// wait for that otherwise.
func (l *Log) Publish() {
	if l.sealer != nil {
		l.sealer.publish()
	}
}

// newRow checks e and makes its row, without its place in the chain.
func newRow(e *sandboxmcp.AuditEntry) (*row, error) {
	switch {
	case e.Action == "":
		return nil, errors.New("the entry has no action")
	case e.Namespace == "":
		return nil, errors.New("the entry has no namespace")
	case e.Phase != sandboxmcp.PhaseIntent && e.Phase != sandboxmcp.PhaseOutcome:
		return nil, fmt.Errorf("the entry has the unknown phase %q", e.Phase)
	case e.DurationMS != nil && (math.IsNaN(*e.DurationMS) || math.IsInf(*e.DurationMS, 0)):
		return nil, errors.New("the duration of the entry is not a number")
	}
	r := &row{
		ID: column(e.ID), Namespace: column(string(e.Namespace)), Action: column(e.Action), Phase: e.Phase,
		RequestID: column(string(e.RequestID)), SessionID: column(string(e.SessionID)), Language: column(string(e.Language)),
		Detail: column(e.Detail), Actor: column(e.Actor), DurationMS: e.DurationMS,
	}
	if r.ID == "" {
		r.ID = newID()
	}
	if e.ExitCode != nil {
		n := int64(*e.ExitCode)
		r.ExitCode = &n
	}
	if e.Success != nil {
		n := int64(0)
		if *e.Success {
			n = 1
		}
		r.Success = &n
	}
	var err error
	if e.Usage != nil {
		if r.Usage, err = canonicalOf(e.Usage); err != nil {
			return nil, fmt.Errorf("resource usage of the entry: %w", err)
		}
	}
	meta := e.Metadata
	if meta == nil {
		meta = map[string]any{}
	}
	if r.Metadata, err = canonicalOf(meta); err != nil {
		return nil, fmt.Errorf("metadata of the entry: %w", err)
	}
	r.prepare()
	if n := r.size(); n > maxEntry {
		return nil, fmt.Errorf("the entry has %d bytes; it may have %d", n, maxEntry)
	}
	return r, nil
}

// maxEntry bounds an entry, in bytes of its texts. No server comes near it.
const maxEntry = maxRow / 2

// size returns the bytes of the texts of a row.
func (r *row) size() (n int) {
	for _, v := range r.values {
		if text, ok := v.(string); ok {
			n += len(text)
		}
	}
	return n
}

func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// column returns a text that every database stores unchanged. The entry's hash covers the stored text.
// PostgreSQL stores no NUL.
func column(s string) string { return strings.ReplaceAll(valid(s), "\x00", "\ufffd") }

// newID returns a UUID of version 4.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	t := make([]byte, 0, 36)
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			t = append(t, '-')
		}
		t = hex.AppendEncode(t, part)
	}
	return string(t)
}

// scan reads the columns in their order.
func (r *row) scan(rows store.Row) error {
	return rows.Scan(&r.ID, &r.Namespace, &r.Seq, &r.Timestamp, &r.Action, &r.Phase, &r.RequestID, &r.SessionID, &r.Language,
		&r.ExitCode, &r.DurationMS, &r.Success, &r.Detail, &r.Actor, &r.Usage, &r.Metadata, &r.Prev, &r.Hash)
}

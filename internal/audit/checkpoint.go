package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// First lines of signed texts.
const (
	originCheckpoint = "sandboxmcp audit checkpoint v1"
	originDropped    = "sandboxmcp audit dropped v1"
)

// Signer signs the texts of notes and opens notes that it has signed. It also derives a secret for each
// purpose. A [sign.Key] is one.
type Signer interface {
	Note(text string) (string, error)
	OpenNote(signed string) (text string, err error)
	Derive(purpose string) ([]byte, error)
}

// statement is the content of a note: the root of the tree over the first size entries.
type statement struct {
	origin string
	size   int64
	root   tlog.Hash
	at     time.Time
	ends   string // only with originDropped: SHA-256 of the ends of the chains, hex
	macs   int64  // only with originCheckpoint: the first position whose entry must have a MAC; 0: none must
}

// text returns the text to sign. Each statement has one text, and each text is of one
// statement.
func (s statement) text() string {
	t := s.origin + "\n" + strconv.FormatInt(s.size, 10) + "\n" + s.root.String() + "\ntime " + formatTime(s.at) + "\n"
	switch {
	case s.origin == originDropped:
		t += "ends " + s.ends + "\n"
	case s.macs > 0:
		t += "macs from " + strconv.FormatInt(s.macs, 10) + "\n"
	}
	return t
}

// signed returns the note of a statement. It fails if its time cannot be read again.
func (s statement) signed(by Signer) (string, error) {
	if err := checkTime(s.at); err != nil {
		return "", err
	}
	return by.Note(s.text())
}

func parseStatement(text string) (statement, error) {
	bad := errors.New("its text is not a statement about the audit")
	lines := strings.Split(text, "\n")
	if len(lines) < 5 {
		return statement{}, bad
	}
	s := statement{origin: lines[0]}
	var err, err2, err3 error
	s.size, err = strconv.ParseInt(lines[1], 10, 64)
	s.root, err2 = tlog.ParseHash(lines[2])
	s.at, err3 = time.Parse("time "+timeFormat, lines[3])
	if errors.Join(err, err2, err3) != nil || s.size <= 0 {
		return statement{}, bad
	}
	switch s.origin {
	case originCheckpoint:
		s.macs, _ = strconv.ParseInt(strings.TrimPrefix(lines[4], "macs from "), 10, 64) // compared with the text below
	case originDropped:
		s.ends = strings.TrimPrefix(lines[4], "ends ")
	default:
		return statement{}, bad
	}
	if s.text() != text {
		return statement{}, bad
	}
	return s, nil
}

// openStatement checks the signature of a note and returns its statement.
func openStatement(open func(string) (string, error), origin, signed string) (statement, error) {
	text, err := open(signed)
	if err != nil {
		return statement{}, err
	}
	s, err := parseStatement(text)
	if err == nil && s.origin != origin {
		err = errors.New("it is a statement of another kind")
	}
	return s, err
}

// head returns the statement as the API shows it.
func (s statement) head() sandboxmcp.AuditHead {
	at := s.at
	return sandboxmcp.AuditHead{Size: s.size, Root: s.root.String(), SignedAt: &at}
}

// checkpoint is a row of audit_checkpoints, or of audit_rotations.
type checkpoint struct {
	size int64
	note string
	edge []byte
}

// newest returns the newest checkpoint, or one of size 0 if there is none.
func newest(ctx context.Context, db store.Querier) (c checkpoint, err error) {
	err = db.QueryRowContext(ctx, selectNewest).Scan(&c.size, &c.note, &c.edge)
	if errors.Is(err, sql.ErrNoRows) {
		return checkpoint{}, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the newest checkpoint: %w", err)
	}
	return c, nil
}

// EmptyHead returns the head of a record without a checkpoint.
func EmptyHead() sandboxmcp.AuditHead {
	e := edge{}
	return sandboxmcp.AuditHead{Root: e.root().String()}
}

// Head returns the newest checkpoint of a record. Its signature is not checked; [Verify]
// does that.
func Head(ctx context.Context, db *sql.DB) (sandboxmcp.AuditHead, error) {
	c, err := newest(ctx, db)
	if err != nil || c.size == 0 {
		return EmptyHead(), err
	}
	s, err := unchecked(c.note)
	if err != nil {
		return sandboxmcp.AuditHead{}, fmt.Errorf("read the newest checkpoint: %w", err)
	}
	return s.head(), nil
}

// Unsigned counts the entries of a record that are older than a time and that the newest checkpoint does not
// cover. oldest is the time of the first of them. No signature is checked; [Verify] does that.
func Unsigned(ctx context.Context, db *sql.DB, before time.Time) (n int64, oldest time.Time, err error) {
	c, err := newest(ctx, db)
	if err != nil {
		return 0, oldest, err
	}
	var first string
	if err = db.QueryRowContext(ctx, countUnsigned, c.size, formatTime(before)).Scan(&n, &first); err == nil && n > 0 {
		oldest, err = time.Parse(timeFormat, first)
	}
	if err != nil {
		return 0, oldest, fmt.Errorf("look for entries without a checkpoint: %w", err)
	}
	return n, oldest, nil
}

// unchecked returns the statement of a note without a check of its signature.
func unchecked(note string) (statement, error) {
	text, _, _ := strings.Cut(note, "\n\n")
	return parseStatement(text + "\n")
}

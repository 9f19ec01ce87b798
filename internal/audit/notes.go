package audit

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Note is [Log.Op] as a note, whose entry gets its place in the chain later. The entry's time
// is that of the call. Note fails where the step of Op would.
func (l *Log) Note(e *sandboxmcp.AuditEntry) (store.Note, error) {
	r, err := newRow(e)
	if err != nil {
		return store.Note{}, appendError(err)
	}
	at := e.Timestamp
	if at.IsZero() {
		at = l.now()
	}
	if err = checkTime(at); err != nil {
		return store.Note{}, appendError(err)
	}
	r.Timestamp = formatTime(at.UTC().Round(0))
	data, err := json.Marshal(r)
	if err != nil {
		return store.Note{}, appendError(err)
	}
	n := store.Note{Op: func(ctx context.Context, tx *sql.Tx) error { return l.append(ctx, tx, r) }, Kind: bareKind, Data: data}
	if l.notes != nil {
		n.Kind, n.Data = noteKind, l.notes.sealed(data)
	}
	return n, nil
}

// Kinds of the notes of [Log.Note].
const (
	noteKind = "audit with MAC" // the data begins with a MAC
	bareKind = "audit"          // older releases, and logs without a Signer
)

// Notes makes the steps of entries that another process has kept. A later append signs them. signer is
// called once, when there are such entries. It returns the key that the other process had. Without it the
// entries stay where they are, and the steps fail.
func Notes(signer func() (Signer, error)) store.NoteMakers {
	keys := sync.OnceValues(func() (k noteKeys, err error) {
		s, err := signer()
		if err != nil {
			return k, err
		}
		k.open = s.OpenNote
		if k.notes, err = newNoteMACs(s); err == nil {
			k.macs, err = newMACs(s)
		}
		return k, err
	})
	return store.NoteMakers{
		noteKind: func(data []byte) (store.Op, error) {
			k, err := keys()
			if err == nil {
				data, err = k.notes.open(data)
			}
			if err != nil {
				return nil, appendError(err)
			}
			return k.step(data)
		},
		bareKind: func(data []byte) (store.Op, error) {
			k, err := keys()
			if err != nil {
				return nil, appendError(err)
			}
			step, err := k.step(data)
			return func(ctx context.Context, tx *sql.Tx) error {
				if refused := refuseBare(ctx, tx); refused != nil {
					return appendError(refused)
				}
				return step(ctx, tx)
			}, err
		},
	}
}

// NotesKey makes the function for [store.Config] that returns the key of the rows about notes.
func NotesKey(signer func() (Signer, error)) func() ([]byte, error) {
	return func() ([]byte, error) {
		s, err := signer()
		if err != nil {
			return nil, err
		}
		return s.Derive(rowsPurpose)
	}
}

// noteKeys are what a process needs for the notes of others. Only transactions use macs, one at a time.
type noteKeys struct {
	notes *noteMACs
	macs  *macs
	open  func(signed string) (text string, err error)
}

// step makes the step of a note from its data.
func (k noteKeys) step(data []byte) (store.Op, error) {
	var r row
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, appendError(err)
	}
	r.prepare()
	return func(ctx context.Context, tx *sql.Tx) error {
		m := &mark{open: k.open}
		_, err := (&ends{macs: k.macs, mark: m}).append(ctx, tx, &r)
		if err == nil { // the note stays if a trigger has removed the entry
			err = m.find(ctx, tx)
		}
		return appendError(err)
	}, nil
}

// refuseBare fails if entries must have MACs by now. Then a note without one is not of a server.
func refuseBare(ctx context.Context, tx *sql.Tx) error {
	c, err := newest(ctx, tx)
	if err != nil || c.size == 0 {
		return err
	}
	s, err := unchecked(c.note)
	if err == nil && s.macs > 0 {
		err = errors.New("a record has no MAC: a server of an older release has kept it after the update, or it is forged")
	}
	return err
}

package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A row of table notes says how many bytes of a file are carried out, so a writer of the database could
// pass off notes as carried out that are not. If the processes have a key, the row therefore has a MAC over
// the file's name and the number. The transaction that carries notes out stores it. A valid MAC proves that
// the database once had that many bytes of the file.
//
// The name of a file tells whether its row must have a MAC. A writer of the database cannot change
// that name.

// markMAC ends the names of files whose row has a MAC.
const markMAC = "-M"

// notesKey returns the key of the MACs. It is called when it is first needed: commands that
// only read need the key only if other processes have left notes.
type notesKey func() ([]byte, error)

func newNotesKey(key func() ([]byte, error)) notesKey {
	if key == nil {
		return nil
	}
	return sync.OnceValues(key)
}

// mark returns the end of the names of new files.
func (k notesKey) mark() string {
	if k == nil {
		return ""
	}
	return markMAC
}

// of returns the MAC of a file's row, or nil if it needs none.
func (k notesKey) of(name string, applied int64) (any, error) {
	if !strings.HasSuffix(name, markMAC) {
		return nil, nil
	}
	if k == nil {
		return nil, errors.New("the key of the server that has kept them is needed")
	}
	key, err := k()
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte(name + " " + strconv.FormatInt(applied, 10)))
	return hex.EncodeToString(h.Sum(nil)), nil
}

// applied returns how many bytes of a file of this size are carried out. known is false if there is no row. It fails
// if no process with the key has stored that number.
func (n *notes) applied(ctx context.Context, tx *sql.Tx, name string, size int64) (applied int64, known bool, err error) {
	var mac string
	err = tx.QueryRowContext(ctx, selectAppliedMAC, name).Scan(&applied, &mac)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	want, err := n.key.of(name, applied)
	if err != nil {
		return 0, false, err
	}
	text, must := want.(string)
	switch {
	case applied < 0, !must && applied > size, must && !hmac.Equal([]byte(mac), []byte(text)):
		return 0, false, fmt.Errorf("table notes was changed: it says that %d bytes of them are carried out, and no server with this signing key has written that", applied)
	}
	return applied, true, nil
}

// setApplied stores how many bytes of a file are carried out.
func (n *notes) setApplied(ctx context.Context, tx *sql.Tx, name string, applied int64) error {
	mac, err := n.key.of(name, applied)
	if err == nil {
		_, err = tx.ExecContext(ctx, setApplied, name, applied, mac)
	}
	return err
}

// Stuck reports since when notes of this process cannot be carried out although the database works. The time is
// zero if they can be. The log has the reason.
func (s *Store) Stuck() time.Time {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	return s.notes.since
}

package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// A server is killed with as many notes as it may have, and a command that has no key brings them
// into the database. That they have no checkpoint is no fault.
func TestNotesOfAKilledServerAreNoFault(t *testing.T) {
	storetest.SQLite(t)
	from, dir := t.TempDir(), t.TempDir()
	r, other := openSealed(t, from), open(t, from)
	const notes = 500
	files := filepath.Join(from, "sandboxmcp.db-notes")
	var name string
	var content []byte
	err := other.Update(t.Context(), func(context.Context, *sql.Tx) error { // the notes wait for it
		for i := range notes {
			e := entry("a", i)
			n, err := r.l.Note(&e)
			if err == nil {
				err = r.s.Keep(t.Context(), n) //nolint:contextcheck // the note is kept while the transaction lasts, not in it
			}
			if err != nil {
				return err
			}
		}
		all, err := os.ReadDir(files)
		if err == nil {
			name = all[0].Name()
			content, err = os.ReadFile(filepath.Join(files, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.close(t)
	if rep := check(t, from); !rep.OK || rep.Entries != notes || rep.Tail.Entries > 0 {
		t.Errorf("the server that carried out its notes: got %+v", rep)
	}

	filled(t, dir)
	before := check(t, dir).Entries
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Notes: audit.Notes()})
	if err == nil {
		err = errors.Join(os.Mkdir(s.Path()+"-notes", 0o700), os.WriteFile(filepath.Join(s.Path()+"-notes", name), content, 0o600), s.Settle(t.Context()), s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if rep := check(t, dir); !rep.OK || rep.Entries != before+notes || rep.Tail.Entries != notes {
		t.Errorf("got %d entries, %d of them without a checkpoint, and %+v, want %d, %d and no fault", rep.Entries, rep.Tail.Entries, rep.Faults, before+notes, notes)
	}
}

// A command ends right after its last entry, which is a note then. It has a checkpoint all the same:
// without a server, there is no later one.
func TestNotesOfACommandAreSigned(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	const commands = 3
	for i := range commands {
		r := openSealed(t, dir)
		e := entry("a", i)
		n, err := r.l.Note(&e)
		if err == nil {
			err = r.s.Keep(t.Context(), n)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.close(t)
	}
	if rep := check(t, dir); !rep.OK || rep.Entries != commands || rep.Tail.Entries != 0 {
		t.Errorf("got %d entries, %d of them without a checkpoint, and %+v, want %d, none and no fault", rep.Entries, rep.Tail.Entries, rep.Faults, commands)
	}
}

package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// kept returns the notes file of a server that was killed with so many notes: its name and its content.
func kept(t *testing.T, signer audit.Signer, notes int) (name string, content []byte) {
	t.Helper()
	from := t.TempDir()
	r, other := openSealed(t, from, func(c *audit.Config) { c.Signer = signer }), open(t, from)
	files := filepath.Join(from, "sandboxmcp.db-notes")
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
	if rep := check(t, from); signer == ours && (!rep.OK || rep.Entries != int64(notes) || rep.Tail.Entries > 0) {
		t.Errorf("the server that carried out its notes: got %+v", rep)
	}
	return name, content
}

// settle carries out the notes of a killed server as a command does that signs nothing.
func settle(t *testing.T, dir, name string, content []byte) error {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Notes: audit.Notes(func() (audit.Signer, error) { return ours, nil })})
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(os.Mkdir(s.Path()+"-notes", 0o700), os.WriteFile(filepath.Join(s.Path()+"-notes", name), content, 0o600)); err != nil {
		t.Fatal(err)
	}
	return errors.Join(s.Settle(t.Context()), s.Close())
}

// A server is killed with as many notes as it may have, and a command brings them into the database. That
// they have no checkpoint is no fault, and the next entry gets them one.
func TestNotesOfAKilledServerAreNoFault(t *testing.T) {
	storetest.SQLite(t)
	const notes = 500
	name, content := kept(t, ours, notes)
	dir := t.TempDir()
	filled(t, dir)
	before := check(t, dir).Entries
	if err := settle(t, dir, name, content); err != nil {
		t.Fatal(err)
	}
	if rep := check(t, dir, byKey); !rep.OK || rep.Entries != before+notes || rep.Tail.Entries != notes {
		t.Errorf("got %d entries, %d of them without a checkpoint, and %+v, want %d, %d and no fault", rep.Entries, rep.Tail.Entries, rep.Faults, before+notes, notes)
	}
	signsOn(t, dir)
}

// Notes that no server with this key has kept do not get into the record.
func TestForgedNotesAreRefused(t *testing.T) {
	storetest.SQLite(t)
	for name, signer := range map[string]audit.Signer{"of another key": keeper{"theirs"}, "without a MAC": nil} {
		t.Run(name, func(t *testing.T) {
			file, content := kept(t, signer, 2)
			dir := t.TempDir()
			filled(t, dir)
			if err := settle(t, dir, file, content); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v, want an error that names the file %s", err, file)
			}
			if rep := check(t, dir, byKey); !rep.OK || rep.Entries != 30 {
				t.Errorf("got %d entries and %+v, want 30 and no fault", rep.Entries, rep.Faults)
			}
		})
	}
}

// Notes of a killed server of a release without MACs are carried out until the record has the first checkpoint
// of this release.
func TestNotesOfAnOlderRelease(t *testing.T) {
	storetest.SQLite(t)
	file, content := kept(t, nil, 2)
	dir := t.TempDir()
	older(t, dir)
	if err := settle(t, dir, file, content); err != nil {
		t.Fatal(err)
	}
	signsOn(t, dir)
	if rep := check(t, dir, byKey); rep.Entries != 36 {
		t.Errorf("got %d entries, want 36", rep.Entries)
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

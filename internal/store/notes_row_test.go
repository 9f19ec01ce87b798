package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func rowKey() ([]byte, error) { return []byte("secret"), nil }

// A writer of the database says that all notes of a live process are carried out. The process does not believe
// it: it tells, keeps the notes and refuses further ones. They are carried out once the row is gone.
func TestRowOfALiveProcessIsNotBelieved(t *testing.T) {
	storetest.SQLite(t)
	for name, change := range map[string]string{
		"another number":         `UPDATE notes SET applied = 1 << 60`,
		"another number, no MAC": `UPDATE notes SET applied = 1 << 60, mac = NULL`,
		"the row of another":     `UPDATE notes SET applied = o.applied, mac = o.mac FROM (SELECT applied, mac FROM notes WHERE file = 'X-M') AS o`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, store.Config{Dir: dir, NotesKey: rowKey})
			keep(t, s, "a")
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			storetest.Tamper(t, dir, `INSERT INTO notes VALUES ('X-M', 4096, 'of another file'); `+change)
			keep(t, s, "b")
			if err := s.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "table notes was changed") {
				t.Errorf("got %v, want an error that says that the table was changed", err)
			}
			if s.Stuck().IsZero() {
				t.Error("got a store whose notes are not stuck")
			}
			if err := s.Keep(t.Context(), note("c")); err == nil {
				t.Error("a further note: got no error")
			}
			storetest.Tamper(t, dir, `DELETE FROM notes`)
			testkit.Until(t, "the notes are carried out", func() bool { return countServers(t, s) == 2 })
			if err := s.Flush(t.Context()); err != nil || !s.Stuck().IsZero() {
				t.Errorf("afterwards: got %v, and stuck since %v", err, s.Stuck())
			}
		})
	}
}

// kill leaves the file of a process that was killed before its notes were carried out.
func kill(t *testing.T, dir, name string) {
	t.Helper()
	from := t.TempDir()
	first := open(t, store.Config{Dir: from, NotesKey: rowKey})
	release := hold(t, first)
	keep(t, first, "a", "b")
	old := files(t, from)[0]
	content, err := os.ReadFile(filepath.Join(from, "sandboxmcp.db-notes", old))
	release()
	if name == "" {
		name = old
	}
	to := filepath.Join(dir, "sandboxmcp.db-notes")
	if err = errors.Join(err, os.MkdirAll(to, 0o700), os.WriteFile(filepath.Join(to, name), content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A writer of the database says that the notes of a killed process are carried out. The next process keeps the
// file and fails. Without such a row it carries them out.
func TestRowOfAKilledProcessIsNotBelieved(t *testing.T) {
	storetest.SQLite(t)
	for name, change := range map[string]string{
		"no row":             ``,
		"a row without MAC":  `INSERT INTO notes VALUES (?, 20, NULL)`,
		"a row with another": `INSERT INTO notes VALUES (?, 20, 'another')`,
		"a larger number":    `INSERT INTO notes VALUES (?, 1 << 60, NULL)`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, store.Config{Dir: dir, Notes: makers(), NotesKey: rowKey})
			kill(t, dir, "")
			if change != "" {
				storetest.Tamper(t, dir, change, files(t, dir)[0])
			}
			err := s.Recover(t.Context())
			if change == "" {
				if err != nil || countServers(t, s) != 2 || len(files(t, dir)) > 0 {
					t.Errorf("got %v, %d rows and the files %v, want 2 and none", err, countServers(t, s), files(t, dir))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "table notes was changed") || len(files(t, dir)) != 1 {
				t.Errorf("got %v and the files %v, want an error and the file", err, files(t, dir))
			}
		})
	}
}

// A process is killed after its notes were carried out and before it has removed the file: they are not carried out
// again. Without the key, nobody can tell.
func TestRowOfAKilledProcessWithAMAC(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir, Notes: makers(), NotesKey: rowKey})
	keep(t, s, "a", "b")
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := files(t, dir)[0]
	path := filepath.Join(dir, "sandboxmcp.db-notes", name)
	content, err := os.ReadFile(path)
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	without := open(t, store.Config{Dir: dir, Notes: makers()})
	if err = without.Recover(t.Context()); err == nil || len(files(t, dir)) != 1 {
		t.Errorf("without the key: got %v and the files %v, want an error and the file", err, files(t, dir))
	}
	again := open(t, store.Config{Dir: dir, Notes: makers(), NotesKey: rowKey})
	if err = again.Recover(t.Context()); err != nil || countServers(t, again) != 2 || len(files(t, dir)) > 0 {
		t.Errorf("got %v, %d rows and the files %v, want 2 and none", err, countServers(t, again), files(t, dir))
	}
}

// The files of a release without these MACs are carried out as before.
func TestRowOfAnOlderRelease(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir, Notes: makers(), NotesKey: rowKey})
	old := open(t, store.Config{Dir: dir})
	keep(t, old, "a", "b")
	if err := old.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := files(t, dir)[0]
	path := filepath.Join(dir, "sandboxmcp.db-notes", name)
	content, err := os.ReadFile(path)
	if err = errors.Join(err, old.Close()); err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	storetest.Tamper(t, dir, `UPDATE notes SET applied = applied + 1`)
	if err = s.Recover(t.Context()); err == nil {
		t.Error("more than the file has: got no error")
	}
	storetest.Tamper(t, dir, `UPDATE notes SET applied = applied - 1`)
	if err = s.Recover(t.Context()); err != nil || countServers(t, s) != 2 || len(files(t, dir)) > 0 {
		t.Errorf("got %v, %d rows and the files %v, want 2 and none", err, countServers(t, s), files(t, dir))
	}
}

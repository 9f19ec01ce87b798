package store_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

func touch(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// alter opens the database of a closed state and runs a statement in it.
func alter(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func newState(t *testing.T, dir string) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string) store.Config
		message string
	}{
		{"a file", func(t *testing.T, dir string) store.Config {
			touch(t, dir+"/f", "")
			return store.Config{Dir: dir + "/f"}
		}, "is not a directory"},
		{"below a file", func(t *testing.T, dir string) store.Config {
			touch(t, dir+"/f", "")
			return store.Config{Dir: dir + "/f/state"}
		}, "not a directory"},
		{"a public directory of something else", func(t *testing.T, dir string) store.Config {
			touch(t, dir+"/letter.txt", "")
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return store.Config{Dir: dir}
		}, "others may read it, and it holds files that are not ours"},
		{"newer", func(t *testing.T, dir string) store.Config {
			newState(t, dir)
			alter(t, dir+"/sandboxmcp.db", `PRAGMA user_version = 99`)
			return store.Config{Dir: dir}
		}, "schema version 99, newer than"},
		{"no database", func(t *testing.T, dir string) store.Config {
			touch(t, dir+"/sandboxmcp.db", strings.Repeat("this is no database. ", 400))
			return store.Config{Dir: dir}
		}, "the database is damaged"},
		{"another program's", func(t *testing.T, dir string) store.Config {
			alter(t, dir+"/letters.db", `CREATE TABLE letters (t TEXT)`)
			return store.Config{Dir: dir + "/state", SQLitePath: dir + "/letters.db"}
		}, "the database of another program"},
		{"another program's with a version", func(t *testing.T, dir string) store.Config {
			alter(t, dir+"/letters.db", `CREATE TABLE letters (t TEXT); PRAGMA user_version = 1`)
			return store.Config{Dir: dir + "/state", SQLitePath: dir + "/letters.db"}
		}, "the database of another program"},
		{"a database that is a directory", func(t *testing.T, dir string) store.Config {
			return store.Config{Dir: dir, SQLitePath: t.TempDir()}
		}, "is not a regular file"},
		{"nothing", func(*testing.T, string) store.Config { return store.Config{} }, "no state directory is set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := tt.prepare(t, t.TempDir())
			s, err := store.Open(t.Context(), cfg)
			if err == nil {
				s.Close()
				t.Fatal("Open: got a store, want an error")
			}
			e := sandboxmcp.AsError(err)
			if got, want := e.Code, sandboxmcp.CodeBackendUnavailable; got != want {
				t.Errorf("code: got %s, want %s", got, want)
			}
			for _, want := range []string{tt.message, cfg.Dir} {
				if !strings.Contains(e.Message, want) {
					t.Errorf("message %q does not hold %q", e.Message, want)
				}
			}
			if e.Hint == "" {
				t.Error("got no hint, want one")
			}
		})
	}
}

func TestOpenRefusesUnknownSynchronous(t *testing.T) {
	_, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Synchronous: "off"})
	if got, want := sandboxmcp.CodeOf(err), sandboxmcp.CodeInvalidArgument; got != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestOpenClosesDirectoryToOthers(t *testing.T) {
	dir := t.TempDir()
	newState(t, dir)
	file := filepath.Join(dir, "sandboxmcp.db")
	for path, mode := range map[string]os.FileMode{dir: 0o755, file: 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	newState(t, dir)
	for path, want := range map[string]os.FileMode{dir: 0o700, file: 0o600} {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := fi.Mode().Perm(); got != want {
			t.Errorf("mode of %s: got %o, want %o", path, got, want)
		}
	}
}

// The mode of a file that turns out not to be ours stays as it is.
func TestOpenLeavesForeignFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "letters.db")
	alter(t, path, `CREATE TABLE letters (t TEXT)`)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), SQLitePath: path}); err == nil {
		t.Fatal("Open: got a store, want an error")
	}
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fi.Mode().Perm(), os.FileMode(0o644); got != want {
		t.Errorf("mode: got %o, want %o", got, want)
	}
}

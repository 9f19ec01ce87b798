package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// childEnv makes the test binary a second process: "<dir> <name> <rows>". Of the names
// "change", "keep" and "hold" rows counts changes of a topic, notes, and nothing.
const childEnv = "STORE_TEST_CHILD"

func TestMain(m *testing.M) { os.Exit(testkit.RunOrChild(m, childEnv, child)) }

// child opens the state directory and writes rows.
func child(args string) (err error) {
	var dir, name string
	var n int
	if _, err := fmt.Sscan(args, &dir, &name, &n); err != nil {
		return err
	}
	s, err := store.Open(context.Background(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	switch name {
	case "hold":
		return holdLease(s)
	case "keep":
		return keepNotes(s, n)
	}
	for i := range n {
		add := addServer(name + strconv.Itoa(i))
		if name == "change" {
			err = s.Watch("topic").Update(context.Background(), add)
		} else {
			err = s.Update(context.Background(), add)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func countServers(t *testing.T, s *store.Store) int {
	t.Helper()
	return countRows(t, s, "servers")
}

func countRows(t *testing.T, s *store.Store, table string) (n int) {
	t.Helper()
	if err := s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOpenMakesPrivateDirectory(t *testing.T) {
	storetest.SQLite(t)
	parent := filepath.Join(t.TempDir(), "a")
	dir := filepath.Join(parent, "b #?%")
	s := open(t, store.Config{Dir: dir})
	if err := s.Update(t.Context(), addServer("x")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{
		parent: 0o700, dir: 0o700,
		filepath.Join(dir, "sandboxmcp.db"):     0o600,
		filepath.Join(dir, "sandboxmcp.db-wal"): 0o600, // it is there: the journal is a WAL
	} {
		fi, err := os.Stat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := fi.Mode().Perm(); got != want {
			t.Errorf("mode of %s: got %o, want %o", path, got, want)
		}
	}
	if got := s.Dir(); got != dir {
		t.Errorf("Dir: got %q, want %q", got, dir)
	}
}

// The version that Open compares is the one that goose has counted to.
func TestSchemaVersion(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	files, err := filepath.Glob("migrations/sqlite/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal("got no migrations, want some:", err)
	}
	var user, counted int
	err = s.DB().QueryRowContext(t.Context(), `SELECT (SELECT user_version FROM pragma_user_version), max(version_id) FROM goose_db_version`).Scan(&user, &counted)
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(filepath.Base(slices.Max(files)), "_")
	if newest, err := strconv.Atoi(number); err != nil || user != newest || counted != newest {
		t.Errorf("user_version %d, goose %d, want %s, %v", user, counted, number, err)
	}
}

// release makes the database of an older release, whose schema has a version, in a directory.
func release(t *testing.T, dir string, version int64) (*sql.DB, *goose.Provider) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+dir+"/sandboxmcp.db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p, err := goose.NewProvider(goose.DialectSQLite3, db, os.DirFS("migrations/sqlite"), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return db, p
}

// What an older release has kept is there after its schema was brought up to date.
func TestMigrationsKeepResults(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	db, _ := release(t, dir, 3)
	const insert = `INSERT INTO executions (request_id, namespace, session_id, language, status, exit_code, created_at, ended_at, result, stdout, stderr, stdout_blob, stderr_blob, receipt)
		VALUES (?, 'ns', 's', 'python', 'completed', 3, ?, 'e', '{}', x'6f', x'', NULL, 'sum', 'r')`
	for _, row := range [][2]string{{"b", "1"}, {"a", "2"}} {
		if _, err := db.ExecContext(t.Context(), insert, row[0], row[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, store.Config{Dir: dir})
	var got string
	err := s.DB().QueryRowContext(t.Context(), `SELECT group_concat(request_id || namespace || session_id || language || status || exit_code || created_at || ended_at || result || stdout || coalesce(stdout_blob, '-') || stderr_blob || receipt, ' ')
		FROM (SELECT * FROM executions ORDER BY rowid)`).Scan(&got)
	if want := "bnsspythoncompleted31e{}o-sumr ansspythoncompleted32e{}o-sumr"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// The secrets of an older release are announced, so that runs look for them.
func TestMigrationsAnnounceSecrets(t *testing.T) {
	storetest.SQLite(t)
	for rows, want := range []bool{false, true} {
		dir := t.TempDir()
		db, _ := release(t, dir, 12)
		for range rows {
			if _, err := db.ExecContext(t.Context(), `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at) VALUES ('ns', 'K', x'00', 't', '')`); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := open(t, store.Config{Dir: dir}).Watch("vault").Version(t.Context()); err != nil || got > 0 != want {
			t.Errorf("with %d secrets: got version %d and %v, want one above 0: %t", rows, got, err, want)
		}
	}
}

// The record of an older release is there too, each entry in the place that it
// had, also after a way back.
func TestMigrationsKeepTheRecord(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	db, p := release(t, dir, 4)
	const insert = `INSERT INTO audit VALUES ('id' || ?1, ?2, ?3, 't', 'a', 'outcome', 'r', 's', 'l', 3, 1.5, 1, 'd', 'w', '{}', '{}', 'p', 'h')`
	for i, row := range []struct {
		ns  string
		seq int
	}{{"x", 1}, {"y", 1}, {"x", 2}} {
		if _, err := db.ExecContext(t.Context(), insert, i, row.ns, row.seq); err != nil {
			t.Fatal(err)
		}
	}
	look := func(place string) {
		t.Helper()
		var got string
		err := db.QueryRowContext(t.Context(), `SELECT group_concat(`+place+` || id || namespace || seq || exit_code || duration_ms || metadata || hash, ' ') FROM (SELECT *, `+place+` FROM audit ORDER BY `+place+`)`).Scan(&got)
		if want := "1id0x131.5{}h 2id1y131.5{}h 3id2x231.5{}h"; err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := p.UpTo(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	look("position")
	if _, err := p.DownTo(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	look("rowid")
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`UPDATE audit SET seq = 9`, `DELETE FROM audit`} {
		if _, err := db.ExecContext(t.Context(), bad); err == nil {
			t.Errorf("%s: got no error, want a refusal", bad)
		}
	}
}

// A server of a release without MACs adds nothing to the record of a newer one, also if it has opened the
// database before.
func TestMigrationEndsOlderWriters(t *testing.T) {
	storetest.SQLite(t)
	db, p := release(t, t.TempDir(), 14)
	const insert = `INSERT INTO audit VALUES (NULL, 'id', 'x', ?, 't', 'a', 'outcome', 'r', 's', 'l', 3, 1.5, 1, 'd', 'w', '{}', '{}', 'p', 'h'`
	add := func(seq int, mac string) error {
		_, err := db.ExecContext(t.Context(), insert+mac+`)`, seq)
		return err
	}
	if err := add(1, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 15); err != nil {
		t.Fatal(err)
	}
	if err := add(2, ", NULL"); err == nil || !strings.Contains(err.Error(), "older release") {
		t.Errorf("without a MAC: got %v, want a refusal", err)
	}
	if err := add(2, ", 'mac'"); err != nil {
		t.Errorf("with a MAC: got %v, want it added", err)
	}
	if err := add(2, ", 'mac'"); err == nil || !strings.Contains(err.Error(), "append-only") {
		t.Errorf("again: got %v, want a refusal", err)
	}
	if _, err := p.DownTo(t.Context(), 14); err != nil {
		t.Fatal(err)
	}
	if err := add(3, ""); err != nil {
		t.Errorf("after the way back: got %v, want it added", err)
	}
}

// Rows of table packages that a release without MACs has made stay, without a MAC. A server of such a release can
// neither add one nor remove one with a MAC.
func TestMigrationKeepsPackages(t *testing.T) {
	storetest.SQLite(t)
	db, p := release(t, t.TempDir(), 17)
	const insert = `INSERT INTO packages (namespace, language, digest, added_at, requested) VALUES ('ns', 'python', ?, 't', '[]')`
	if _, err := db.ExecContext(t.Context(), insert, "old"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 18); err != nil {
		t.Fatal(err)
	}
	var old bool
	if err := db.QueryRowContext(t.Context(), `SELECT mac IS NULL AND id IS NULL FROM packages`).Scan(&old); err != nil || !old {
		t.Errorf("got a row with a MAC or %v, want the old row without one", err)
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO packages VALUES ('ns', 'python', 'new', 't', '[]', 'id', 'mac')`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), insert, "another"); err == nil || !strings.Contains(err.Error(), "older release") {
		t.Errorf("without a MAC: got %v, want a refusal", err)
	}
	if _, err := db.ExecContext(t.Context(), `DELETE FROM packages`); err == nil || !strings.Contains(err.Error(), "older release") {
		t.Errorf("deleted with a MAC: got %v, want a refusal", err)
	}
	if _, err := p.DownTo(t.Context(), 17); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), insert, "another"); err != nil {
		t.Errorf("after the way back: got %v, want it added", err)
	}
}

func TestOpenKeepsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		s, err := store.Open(t.Context(), store.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(t.Context(), addServer(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		if got, want := countServers(t, s), i+1; got != want {
			t.Errorf("rows: got %d, want %d", got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDBIsForReading(t *testing.T) {
	for _, path := range []string{"", store.MemoryPath} {
		s := open(t, store.Config{Dir: t.TempDir(), SQLitePath: path})
		if err := s.Update(t.Context(), addServer("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DB().ExecContext(t.Context(), `DELETE FROM servers`); err == nil {
			t.Errorf("path %q: a write through DB: got no error, want a refusal", path)
		}
		if got := countServers(t, s); got != 1 {
			t.Errorf("path %q: got %d rows, want 1", path, got)
		}
	}
}

func TestMemory(t *testing.T) {
	dir := t.TempDir()
	cfg := store.Config{Dir: dir, SQLitePath: store.MemoryPath}
	a, b := open(t, cfg), open(t, cfg)
	// A reader in the middle of its rows delays no other call.
	if err := a.Update(t.Context(), addServer("1"), addServer("2")); err != nil {
		t.Fatal(err)
	}
	rows, err := a.DB().QueryContext(t.Context(), `SELECT id FROM servers`)
	if err != nil {
		t.Fatal(err)
	}
	rows.Next()
	if err := a.Update(t.Context(), addServer("3")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(rows.Close(), rows.Err()); err != nil {
		t.Error(err)
	}
	if got := countServers(t, a); got != 3 {
		t.Errorf("rows: got %d, want 3", got)
	}
	if got := countServers(t, b); got != 0 {
		t.Errorf("rows of another one: got %d, want 0", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "sandboxmcp.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: got %v, want none made", err)
	}
}

func TestTwoStoresOneDirectory(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, store.Config{Dir: dir}), open(t, store.Config{Dir: dir})
	const writers, each = 8, 25
	var wg sync.WaitGroup
	for w := range writers {
		s := a
		if w%2 == 1 {
			s = b
		}
		wg.Go(func() {
			for i := range each {
				if err := s.Update(t.Context(), addServer(fmt.Sprintf("%d-%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range []*store.Store{a, b} {
		if got, want := countServers(t, s), writers*each; got != want {
			t.Errorf("rows: got %d, want %d", got, want)
		}
	}
}

// Several processes that find no directory at all make one state.
func TestProcessesStartAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	const processes, each = 5, 20
	cmds := make([]*exec.Cmd, processes)
	outs := make([]strings.Builder, processes)
	for i := range cmds {
		cmds[i] = exec.CommandContext(t.Context(), os.Args[0])
		cmds[i].Env = append(os.Environ(), fmt.Sprintf("%s=%s p%d- %d", childEnv, dir, i, each))
		cmds[i].Stdout, cmds[i].Stderr = &outs[i], &outs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: got %v: %s, want no error", i, err, outs[i].String())
		}
	}
	s := open(t, store.Config{Dir: dir})
	if got, want := countServers(t, s), processes*each; got != want {
		t.Errorf("rows: got %d, want %d", got, want)
	}
}

// A state that is up to date is opened without the lease of the migration.
func TestOpenMigratesOnce(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	lease := filepath.Join(dir, "migrate.lock")
	open(t, store.Config{Dir: dir})
	if err := os.Remove(lease); err != nil {
		t.Fatalf("the lease of the first open: got %v, want a file", err)
	}
	open(t, store.Config{Dir: dir})
	if _, err := os.Lstat(lease); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lease after the second open: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestCloseRefusesLaterUpdates(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	ran := false
	err = s.Update(t.Context(), func(context.Context, *sql.Tx) error { ran = true; return nil })
	if got, want := sandboxmcp.CodeOf(err), sandboxmcp.CodeBackendUnavailable; got != want || ran {
		t.Errorf("got %v, ran %v, want %s", err, ran, want)
	}
}

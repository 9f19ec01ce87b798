package installed_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/installed"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// bed is a table in which each removal is recorded.
type bed struct {
	*installed.Table

	t      *testing.T
	dir    string
	store  *store.Store
	record *audit.Log
}

func openBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	s := openStore(t, dir)
	l, err := audit.Open(t.Context(), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.WithoutCancel(t.Context())) })
	return &bed{Table: table(t, s, secret, nil), t: t, dir: dir, store: s, record: l}
}

// other is the table of another server with the same database, with the log of that server.
func (b *bed) other(key func(string) ([]byte, error)) (*installed.Table, *bytes.Buffer) {
	var log bytes.Buffer
	return table(b.t, b.store, key, slog.New(slog.NewTextHandler(&log, nil))), &log
}

func (b *bed) remove(digest string) int {
	b.t.Helper()
	gone, err := b.Remove(b.t.Context(), "one", func(s installed.Set) bool { return s.Digest == digest }, func(gone []installed.Set) store.Op {
		return b.record.Op(&sandboxmcp.AuditEntry{
			Action: installed.ActionRemoved, Phase: sandboxmcp.PhaseOutcome, Namespace: "one", Metadata: map[string]any{installed.KeyRemoved: installed.IDs(gone)},
		})
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(gone)
}

// faults returns what installed.Faults finds wrong with the rows.
func (b *bed) faults() string {
	b.t.Helper()
	all, err := installed.Faults(b.t.Context(), b.store.DB(), secret)
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// tamper executes statements as a writer of the database without the signing key could.
func (b *bed) tamper(statements string) {
	b.t.Helper()
	drop := `DROP TRIGGER IF EXISTS packages_made; DROP TRIGGER IF EXISTS packages_removed; `
	if storetest.Postgres() {
		drop = `DROP TRIGGER IF EXISTS packages_made ON packages; DROP TRIGGER IF EXISTS packages_removed ON packages; `
	}
	storetest.Tamper(b.t, b.dir, drop+statements)
}

// TestForgedPackagesAreNotThere: a row that was made or changed in the database gives a namespace no packages, is logged
// once, and leaves the other sets alone.
func TestForgedPackagesAreNotThere(t *testing.T) {
	copied := func(mac string) string {
		return `INSERT INTO packages (namespace, language, digest, added_at, requested, id, mac) SELECT 'two', language, digest, added_at, requested, id, ` + mac + ` FROM packages WHERE digest = 'x'`
	}
	for name, c := range map[string]struct {
		statement string
		one, two  []string
	}{
		"a copied row":      {copied("mac"), []string{"y", "x"}, []string{"z"}},
		"an empty MAC":      {copied("''"), []string{"y", "x"}, []string{"z"}},
		"no MAC":            {copied("NULL"), []string{"y", "x"}, []string{"z"}},
		"another namespace": {`UPDATE packages SET namespace = 'two' WHERE digest = 'x'`, []string{"y"}, []string{"z"}},
		"another language":  {`UPDATE packages SET language = 'node' WHERE digest = 'x'`, []string{"y"}, []string{"z"}},
		"another tree":      {`UPDATE packages SET digest = 'w' WHERE digest = 'x'`, []string{"y"}, []string{"z"}},
		"another time":      {`UPDATE packages SET added_at = '2099-01-01T00:00:00.000000000Z' WHERE digest = 'x'`, []string{"y"}, []string{"z"}},
		"other names":       {`UPDATE packages SET requested = '["w"]' WHERE digest = 'x'`, []string{"y"}, []string{"z"}},
		"no JSON":           {`UPDATE packages SET requested = 'w' WHERE digest = 'x'`, []string{"y"}, []string{"z"}},
		"another id":        {`UPDATE packages SET id = id || '1' WHERE digest = 'x'`, []string{"y"}, []string{"z"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := openBed(t)
			add(t, b.Table, "one", "x")
			add(t, b.Table, "one", "y")
			add(t, b.Table, "two", "z")
			b.tamper(c.statement)
			o, log := b.other(secret)
			for range 2 {
				for ns, want := range map[sandboxmcp.Namespace][]string{"one": c.one, "two": c.two} {
					if diff := cmp.Diff(want, digests(t, o, ns)); diff != "" {
						t.Errorf("%s (-want +got):\n%s", ns, diff)
					}
				}
				add(t, b.Table, "three", "v") // the rows are read again
			}
			want := "were not installed by a server with the signing key"
			if name == "no MAC" {
				want = "packages that an older release has installed"
			} else if got := b.faults(); strings.Count(got, want) != 1 {
				t.Errorf("faults: got %q, want %q", got, want)
			}
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("got the log %q, want one line %q", log, want)
			}
			add(t, b.Table, "two", "x") // installed again
			if diff := cmp.Diff("x", digests(t, o, "two")[0]); diff != "" {
				t.Errorf("installed again (-want +got):\n%s", diff)
			}
		})
	}
}

// TestALargeRowHidesNoOther: a row that is larger than real ones is not read. It and the other faulty rows are faults.
func TestALargeRowHidesNoOther(t *testing.T) {
	b := openBed(t)
	for _, digest := range []string{"x", "y", "z"} {
		add(t, b.Table, "one", digest)
	}
	text := `printf('%.*c', 17 * 1024 * 1024, 'x')`
	if storetest.Postgres() {
		text = `repeat('x', 17 * 1024 * 1024)`
	}
	b.tamper(`UPDATE packages SET requested = ` + text + ` WHERE digest = 'y'; UPDATE packages SET requested = '[]' WHERE digest = 'z'`)
	o, _ := b.other(secret)
	if diff := cmp.Diff([]string{"x"}, digests(t, o, "one")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	conn, err := b.store.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	restore, err := store.Bound(conn, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer restore()
	all, err := installed.Faults(t.Context(), conn, secret)
	if err != nil || len(all) != 2 || !strings.Contains(all[0], "1 rows of table packages") || !strings.Contains(all[1], `"z"`) {
		t.Errorf("got faults %q and %v, want the large row and the changed one", all, err)
	}
}

// TestRemovedPackagesStayRemoved: a row that is put back after its removal gives a namespace no packages. Neither does a
// copy from before the packages were installed once more.
func TestRemovedPackagesStayRemoved(t *testing.T) {
	b := openBed(t)
	add(t, b.Table, "one", "x")
	add(t, b.Table, "one", "y")
	b.tamper(`CREATE TABLE first AS SELECT * FROM packages WHERE digest = 'x'`)
	add(t, b.Table, "one", "x") // once more
	b.tamper(`CREATE TABLE second AS SELECT * FROM packages WHERE digest = 'x'`)
	if n := b.remove("x"); n != 1 {
		t.Fatalf("got %d sets removed, want 1", n)
	}
	for _, table := range []string{"first", "second"} {
		b.tamper(`DELETE FROM packages WHERE digest = 'x'; INSERT INTO packages SELECT * FROM ` + table)
		o, log := b.other(secret)
		if diff := cmp.Diff([]string{"y"}, digests(t, o, "one")); diff != "" {
			t.Errorf("the %s copy (-want +got):\n%s", table, diff)
		}
		const want = "were removed, and their row was put back"
		if got := b.faults(); !strings.Contains(got, want) || strings.Count(log.String(), want) != 1 {
			t.Errorf("the %s copy: got faults %q and the log %q, want both to say that it %s", table, got, log, want)
		}
	}
	add(t, b.Table, "one", "x") // installed again, in place of the row
	if diff := cmp.Diff([]string{"x", "y"}, digests(t, b.Table, "one")); diff != "" || b.faults() != "" {
		t.Errorf("installed again (-want +got):\n%s\nand faults %q", diff, b.faults())
	}
}

// TestNoIndexHidesARemovalFromTheVerification: a row that was put back is named, whatever indexes and types a writer of the database
// has given the record.
func TestNoIndexHidesARemovalFromTheVerification(t *testing.T) {
	storetest.SQLite(t)
	for name, change := range map[string]string{
		"an index": `DROP INDEX audit_action; CREATE INDEX audit_action ON audit (namespace, action, seq) WHERE action <> 'execute' AND action <> 'remove_package';
			PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, ' AND action <> ''remove_package''', '') WHERE name = 'audit_action'; PRAGMA schema_version = 900`,
		"a blob": `PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = 'audit'; PRAGMA schema_version = 900;
			UPDATE audit SET action = CAST(action AS BLOB) WHERE action = 'remove_package'; UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 'audit'; PRAGMA schema_version = 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			b := openBed(t)
			add(t, b.Table, "one", "x")
			b.tamper(`CREATE TABLE copies AS SELECT * FROM packages`)
			b.remove("x")
			b.tamper(`INSERT INTO packages SELECT * FROM copies; ` + change)
			const want = "were removed, and their row was put back"
			if got := b.faults(); !strings.Contains(got, want) {
				t.Errorf("got faults %q, want that packages %s", got, want)
			}
		})
	}
}

// TestPackagesOfAnOlderReleaseLapse: rows without a MAC give no packages, and one line of the log says so. They are no
// fault, and can be removed.
func TestPackagesOfAnOlderReleaseLapse(t *testing.T) {
	b := openBed(t)
	for _, digest := range []string{"x", "y", "z"} {
		add(t, b.Table, "one", digest)
	}
	b.tamper(`UPDATE packages SET mac = NULL, id = NULL`)
	o, log := b.other(secret)
	for range 3 {
		if got := digests(t, o, "one"); len(got) != 0 {
			t.Errorf("got %v, want none", got)
		}
		add(t, b.Table, "two", "v")
	}
	if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "count=3") {
		t.Errorf("got the log %q, want one line about 3 sets", log)
	}
	if got := b.faults(); got != "" {
		t.Errorf("got faults %q, want none", got)
	}
	add(t, b.Table, "one", "x")
	if diff := cmp.Diff([]string{"x"}, digests(t, o, "one")); diff != "" {
		t.Errorf("installed again (-want +got):\n%s", diff)
	}
	if n := b.remove("y"); n != 1 {
		t.Errorf("got %d sets removed, want 1", n)
	}
}

// TestServersShareTheKey: servers with the same signing key see each other's packages. A server with another key does not,
// and a server without a key installs none.
func TestServersShareTheKey(t *testing.T) {
	b := openBed(t)
	add(t, b.Table, "one", "x")
	for name, c := range map[string]struct {
		key  func(string) ([]byte, error)
		want int
	}{
		"the same key": {secret, 1},
		"another key":  {func(string) ([]byte, error) { return []byte("another"), nil }, 0},
		"no key":       {nil, 0},
	} {
		o, _ := b.other(c.key)
		if got := digests(t, o, "one"); len(got) != c.want {
			t.Errorf("%s: got %v, want %d", name, got, c.want)
		}
	}
	o, _ := b.other(nil)
	if err := o.Add(t.Context(), "one", installed.Set{Language: "python", Digest: "y"}, recorded); err == nil {
		t.Error("installed without the key: got no error")
	}
}

// TestOlderServersAreRefused: the database refuses what a server whose release has no MACs installs or removes.
func TestOlderServersAreRefused(t *testing.T) {
	b := openBed(t)
	add(t, b.Table, "one", "x")
	for _, q := range []string{
		`INSERT INTO packages (namespace, language, digest, added_at, requested) VALUES ('one', 'python', 'y', 't', '[]')`,
		`INSERT INTO packages (namespace, language, digest, added_at, requested) VALUES ('one', 'python', 'x', 't', '[]')
			ON CONFLICT (namespace, language, digest) DO UPDATE SET added_at = excluded.added_at, requested = excluded.requested`,
		`DELETE FROM packages`,
	} {
		err := b.store.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, q)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "older release") {
			t.Errorf("%s: got %v, want it refused", q, err)
		}
	}
	if n := b.remove("x"); n != 1 {
		t.Errorf("got %d sets removed by this release, want 1", n)
	}
}

// TestPackagesInABlobAreRemoved: packages that are in force can be removed, although a writer of the database has made their
// namespace a blob, which SQLite takes for another one.
func TestPackagesInABlobAreRemoved(t *testing.T) {
	storetest.SQLite(t)
	b := openBed(t)
	add(t, b.Table, "one", "x")
	b.tamper(`CREATE TABLE copies AS SELECT CAST(namespace AS BLOB) AS namespace, language, digest, added_at, requested, id, mac FROM packages; DROP TABLE packages; ALTER TABLE copies RENAME TO packages`)
	o, _ := b.other(secret)
	if diff := cmp.Diff([]string{"x"}, digests(t, o, "one")); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	if n := b.remove("x"); n != 1 {
		t.Errorf("got %d removed, want 1", n)
	}
	if got := digests(t, o, "one"); len(got) > 0 {
		t.Errorf("after: got %v, want none", got)
	}
}

// TestAnEntryThatIsRestoredEndsASet: a running server learns of a removal once its entry is as a server has written it,
// although a trigger has changed it before the server could read it, and kept the row as it was.
func TestAnEntryThatIsRestoredEndsASet(t *testing.T) {
	storetest.SQLite(t)
	for _, late := range []bool{false, true} { // the row is back only after the entry was restored
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			b := openBed(t)
			o, _ := b.other(secret)
			record := func(action string) {
				if _, err := b.record.Append(t.Context(), sandboxmcp.AuditEntry{Action: action, Phase: sandboxmcp.PhaseOutcome, Namespace: "one"}); err != nil {
					t.Fatal(err)
				}
			}
			record("install_package")
			add(t, b.Table, "one", "x")
			if got := digests(t, o, "one"); len(got) != 1 {
				t.Fatalf("got %v, want one set", got)
			}
			b.tamper(`CREATE TABLE copies AS SELECT * FROM packages;
				CREATE TRIGGER lose AFTER INSERT ON audit WHEN NEW.action = 'remove_package' BEGIN UPDATE audit SET action = 'other' WHERE position = NEW.position; END`)
			if n := b.remove("x"); n != 1 {
				t.Fatalf("got %d removed, want 1", n)
			}
			add(t, b.Table, "two", "y")
			record(installed.ActionRemoved)
			back := `INSERT INTO packages SELECT * FROM copies`
			if !late {
				b.tamper(back)
				add(t, b.Table, "two", "z") // the rows are read again
			}
			digests(t, b.Table, "one")
			digests(t, o, "one")
			b.tamper(`DROP TRIGGER lose; UPDATE audit SET action = 'remove_package' WHERE action = 'other'`)
			if late {
				digests(t, b.Table, "two")
				digests(t, o, "two")
				b.tamper(`UPDATE audit SET action = 'other' WHERE position = (SELECT min(position) FROM audit WHERE action = 'remove_package'); ` + back)
				add(t, b.Table, "two", "z")
			}
			for range 2 { // the second time the record has no entries in doubt
				for n, table := range []*installed.Table{b.Table, o} {
					if got := digests(t, table, "one"); len(got) > 0 {
						t.Errorf("server %d: got %v, want none", n, got)
					}
				}
			}
		})
	}
}

// TestAServerKnowsWhatItHasRemoved: a server uses no set that was removed there, although triggers keep its row and remove the entry
// of the record.
func TestAServerKnowsWhatItHasRemoved(t *testing.T) {
	storetest.SQLite(t)
	b := openBed(t)
	add(t, b.Table, "one", "x")
	if got := digests(t, b.Table, "one"); len(got) != 1 {
		t.Fatalf("got %v, want one set", got)
	}
	b.tamper(`CREATE TABLE copies AS SELECT * FROM packages;
		CREATE TRIGGER stays AFTER DELETE ON packages BEGIN INSERT INTO packages SELECT * FROM copies; END;
		CREATE TRIGGER lose AFTER INSERT ON audit BEGIN DELETE FROM audit WHERE position = NEW.position; END`)
	if n := b.remove("x"); n != 1 {
		t.Fatalf("got %d removed, want 1", n)
	}
	if got := digests(t, b.Table, "one"); len(got) > 0 {
		t.Errorf("got %v, want none", got)
	}
}

package store_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// A function that a statement calls can change the connection for good, and be gone when the tables are compared. OTHER is a schema that a
// writer of the database has made for it, and has all tables.
func TestNothingOfOthersStaysInAConnection(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	const moves = `SELECT set_config('search_path', 'OTHER, pg_temp', false)`
	for name, c := range map[string]struct{ change, undo string }{
		"a condition of an index": {
			`CREATE FUNCTION f() RETURNS bool IMMUTABLE LANGUAGE sql AS $$ ` + moves + ` IS NOT NULL $$; CREATE INDEX i ON limits (namespace) WHERE f()`,
			`DROP INDEX i; DROP FUNCTION f`,
		},
		"a trigger": {
			`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE $e$ ` + moves + ` $e$; RETURN NEW; END $$; CREATE TRIGGER t BEFORE INSERT ON limits FOR EACH ROW EXECUTE FUNCTION f()`,
			`DROP TRIGGER t ON limits; DROP FUNCTION f`,
		},
		"another role": {
			`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SET ROLE pg_monitor'; RETURN NEW; END $$; CREATE TRIGGER t BEFORE INSERT ON limits FOR EACH ROW EXECUTE FUNCTION f()`,
			`DROP TRIGGER t ON limits; DROP FUNCTION f`,
		},
		"a prepared statement": {
			`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE n TEXT; BEGIN SELECT quote_ident(name) INTO n FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO limits%';
				EXECUTE 'DEALLOCATE ' || n; EXECUTE 'PREPARE ' || n || ' (TEXT) AS INSERT INTO OTHER.limits VALUES ($1, '''', '''')'; RETURN NEW; END $$; CREATE TRIGGER t BEFORE INSERT ON limits FOR EACH ROW EXECUTE FUNCTION f()`,
			`DROP TRIGGER t ON limits; DROP FUNCTION f`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			s := open(t, storetest.On(store.Config{Dir: dir}))
			open(t, storetest.On(store.Config{Dir: other}))
			u, err := url.Parse(storetest.URL(other))
			if err != nil {
				t.Fatal(err)
			}
			schema := u.Query().Get("search_path")
			add := func(namespace string) error {
				return s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, `INSERT INTO limits VALUES (?, '', '')`, namespace)
					return err
				})
			}
			read := func() (n int, err error) {
				err = s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM limits WHERE namespace <> ?`, "").Scan(&n)
				return n, err
			}
			storetest.Run(t, dir, strings.ReplaceAll(c.change, "OTHER", schema))
			_, failed := read()
			if err = errors.Join(failed, add("first")); err != nil {
				t.Fatal(err)
			}
			storetest.Run(t, dir, c.undo)
			if err = add("second"); err != nil {
				t.Fatal(err)
			}
			if n, err := read(); err != nil || n != 2 {
				t.Errorf("got %d rows and %v, want 2", n, err)
			}
		})
	}
}

// One statement of a transaction that reads can change the connection for the next ones.
func TestNothingOfOthersStaysInATransaction(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir, other := t.TempDir(), t.TempDir()
	s := open(t, storetest.On(store.Config{Dir: dir}))
	open(t, storetest.On(store.Config{Dir: other}))
	u, err := url.Parse(storetest.URL(other))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, dir, `INSERT INTO limits VALUES ('own', '', ''); CREATE FUNCTION f() RETURNS bool IMMUTABLE LANGUAGE sql AS $$ SELECT set_config('search_path', '`+u.Query().Get("search_path")+
		`, pg_temp', false) IS NOT NULL $$; CREATE INDEX i ON limits (namespace) WHERE f()`)
	tx, err := s.DB().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for range 2 {
		n := 0
		if err = tx.QueryRowContext(t.Context(), `SELECT count(*) FROM limits`).Scan(&n); err != nil || n != 1 {
			t.Errorf("got %d rows and %v, want 1", n, err)
		}
	}
}

// A writer of the database lowers the version of a topic before another server raises it again. A notification says that there was a change,
// also if the name of the schema has spaces.
func TestANotificationFromASchemaWithSpaces(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir := t.TempDir()
	u, err := url.Parse(storetest.URL(dir))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	schema := `"` + query.Get("search_path") + ` of two"`
	storetest.Run(t, dir, `CREATE SCHEMA `+schema)
	query.Set("search_path", schema)
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	var both [2]*store.Store
	for n := range both {
		if both[n], err = store.Open(t.Context(), store.Config{Dir: t.TempDir(), Postgres: u.String()}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = both[n].Close() })
	}
	a, b := both[0], both[1]
	reads := 0
	c := store.NewCached(a.Watch("topic"), func(context.Context) (int, error) { reads++; return reads, nil })
	read := func() bool {
		before := reads
		if _, err := c.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		return reads > before
	}
	change(t, b.Watch("topic"))
	testkit.Until(t, "the value is kept", func() bool { return !read() && reads > 0 })
	storetest.Run(t, dir, `UPDATE `+schema+`.signals SET version = version - 1`)
	change(t, b.Watch("topic"))
	testkit.Until(t, "the value is read again", read)
}

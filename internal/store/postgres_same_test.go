package store_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// schemaIn returns the schema in the URL of a state directory's database.
func schemaIn(t *testing.T, dir string) string {
	t.Helper()
	u, err := url.Parse(storetest.URL(dir))
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("search_path")
}

// A writer of the database can change the search path of a role after a server has started. Commands that are started later do not use
// the other schema, where the record could be a copy.
func TestLaterProcessesHaveTheSameSchema(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir, role := t.TempDir(), "later"
	cfg := store.Config{Dir: dir, Postgres: ownRole(t, dir, role)}
	defer storetest.Run(t, dir, `DROP OWNED BY `+role+` CASCADE; DROP ROLE `+role)
	try := func() (opened, looked error) {
		s, opened := store.Open(t.Context(), cfg)
		if opened == nil {
			opened = s.Close()
		}
		v, looked := store.Look(t.Context(), cfg)
		if looked == nil && v != nil {
			looked = v.Close()
		}
		return opened, looked
	}
	for range 2 {
		if opened, looked := try(); opened != nil || looked != nil {
			t.Fatalf("got %v and %v, want no error", opened, looked)
		}
	}
	running, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Close() }()
	told := func(want bool) {
		t.Helper()
		if all, err := running.Changed(t.Context()); err != nil || len(all) > 0 != want || want && !strings.Contains(all[0].Reason, "another schema") {
			t.Errorf("a running server: got %v and %v, want it told %t", all, err, want)
		}
	}
	told(false)
	other := t.TempDir()
	open(t, storetest.On(store.Config{Dir: other}))
	storetest.Run(t, dir, `ALTER ROLE `+role+` SET search_path = `+schemaIn(t, other))
	told(true)
	opened, looked := try()
	for name, err := range map[string]error{"Open": opened, "Look": looked} {
		if e := sandboxmcp.AsError(err); e == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, schemaIn(t, dir)) || !strings.Contains(e.Hint, "postgres.schema") {
			t.Errorf("%s: got %v, want that it is another schema", name, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "postgres.schema")); err != nil {
		t.Fatal(err)
	}
	if opened, looked = try(); opened != nil || looked != nil {
		t.Errorf("without the file: got %v and %v, want no error", opened, looked)
	}
}

// A writer of the database can let connections that read a table have another schema from then on, by statistics or by a view. This is
// told although the other schema is as a server makes it.
func TestChangedConnectionsHideNoDifference(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	for name, c := range map[string]struct{ change, reason string }{
		"statistics":               {`CREATE STATISTICS more ON (version + moved()) FROM signals`, `the table "signals"`},
		"statistics of migrations": {`CREATE STATISTICS more ON (version_id + moved()) FROM goose_db_version`, `the table "goose_db_version"`},
		"a function":               {`CREATE FUNCTION unnest(oidvector) RETURNS SETOF oid LANGUAGE plpgsql AS $$ BEGIN PERFORM moved(); RETURN NEXT CAST(4294967295 AS oid); END $$`, `a function "unnest"`},
		"a view":                   {`ALTER TABLE goose_db_version RENAME TO other; CREATE VIEW goose_db_version AS SELECT other.* FROM other, moved()`, `the table "goose_db_version" is not a table`},
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			s := open(t, storetest.On(store.Config{Dir: dir}))
			open(t, storetest.On(store.Config{Dir: other}))
			storetest.Run(t, dir, `CREATE FUNCTION moved() RETURNS BIGINT IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('search_path', '`+schemaIn(t, other)+`', false); RETURN 0; END $$; `+c.change)
			for range 2 {
				for _, table := range []string{"signals", "goose_db_version"} {
					var n int
					_ = s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n) // a view may be refused
				}
				all, err := s.Changed(t.Context())
				if err != nil || len(all) != 1 || !strings.Contains(all[0].Reason, c.reason) {
					t.Errorf("got %v and %v, want the difference of %s", all, err, c.reason)
				}
			}
			v, err := store.Look(t.Context(), storetest.On(store.Config{Dir: dir}))
			if e, ok := errors.AsType[*sandboxmcp.Error](err); ok && name == "a view" && strings.Contains(e.Message, "goose_db_version") {
				return // PostgreSQL has refused the view
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = v.Close() }()
			all, err := v.Differences(t.Context(), v.DB())
			if err != nil || len(all) != 1 || !strings.Contains(all[0].Reason, c.reason) {
				t.Errorf("a command: got %v and %v, want the difference of %s", all, err, c.reason)
			}
		})
	}
}

// A writer of the database can end the connection on which a server is notified, keep it from making another one, and lower the version of
// a topic, so that the next change gives the version that the server has read. It reads that change nevertheless.
func TestAServerThatIsNotNotifiedReadsEachChange(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir, role := t.TempDir(), "deaf"
	url := ownRole(t, dir, role)
	storetest.Run(t, dir, `ALTER ROLE `+role+` NOSUPERUSER; ALTER SCHEMA `+schemaIn(t, dir)+` OWNER TO `+role)
	defer storetest.Run(t, dir, `DROP OWNED BY `+role+` CASCADE; DROP ROLE `+role)
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	other, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Postgres: storetest.URL(dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	reads := 0
	c := store.NewCached(s.Watch("topic"), func(context.Context) (int, error) { reads++; return reads, nil })
	get := func() int {
		got, err := c.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	kept := func() bool {
		was := get()
		return get() == was
	}
	change(t, other.Watch("topic"))
	testkit.Until(t, "the value is kept", kept)
	storetest.Run(t, dir, `ALTER ROLE `+role+` CONNECTION LIMIT 0; SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '`+role+`' AND query LIKE 'LISTEN%'`)
	testkit.Until(t, "the server is not notified", func() bool { return !kept() })
	if all, err := s.Changed(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got the differences %v and %v, want none: the tables are compared without a new connection as well", all, err)
	}
	was := get()
	storetest.Run(t, dir, `UPDATE signals SET version = version - 1 WHERE topic = 'topic'`)
	change(t, other.Watch("topic"))
	if got := get(); got == was {
		t.Errorf("got the value of before the change, reading %d", got)
	}
	storetest.Run(t, dir, `ALTER ROLE `+role+` CONNECTION LIMIT -1`)
	testkit.Until(t, "the value is kept again", kept)
}

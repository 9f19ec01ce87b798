// Package storetest lets tests of rooms that use a store run on PostgreSQL as well.
package storetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Env has the URL of a PostgreSQL database for tests. scripts/postgres-test.sh sets it.
const Env = "SANDBOXMCP_TEST_POSTGRES"

// Postgres reports whether the tests run on PostgreSQL.
func Postgres() bool { return os.Getenv(Env) != "" }

// On returns the configuration. If the tests run on PostgreSQL, its database is a schema of
// its own for each state directory. A configuration with a path of SQLite stays as it is.
func On(c store.Config) store.Config {
	if !Postgres() || c.SQLitePath != "" {
		return c
	}
	c.Postgres = URL(c.Dir)
	return c
}

// URL returns the URL of the database for a state directory, and makes its schema.
func URL(dir string) string {
	made.Lock()
	defer made.Unlock()
	schema := schemaOf(dir)
	if u, ok := made.urls[schema]; ok {
		return u
	}
	u, err := url.Parse(os.Getenv(Env))
	if err != nil {
		panic(err)
	}
	conn, err := pgx.Connect(context.Background(), u.String())
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	// Several processes may make it at once, and IF NOT EXISTS does not wait for the others.
	for _, statement := range []string{"SELECT pg_advisory_lock(1)", "CREATE SCHEMA IF NOT EXISTS " + schema} {
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			panic(err)
		}
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	if made.urls == nil {
		made.urls = map[string]string{}
	}
	made.urls[schema] = u.String()
	return u.String()
}

// schemaOf returns the name of the schema for a state directory.
func schemaOf(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	sum := sha256.Sum256([]byte(dir))
	return "t" + hex.EncodeToString(sum[:10])
}

var made struct {
	sync.Mutex

	urls map[string]string
}

// SQLite skips a test of what SQLite alone has: its files, its locks, its releases.
func SQLite(t testing.TB) {
	t.Helper()
	if Postgres() {
		t.Skip("a test of SQLite")
	}
}

// Tamper runs statements on the database of a state directory as an attacker with all rights to it could: without
// the store, and without the triggers that guard the audit.
func Tamper(t testing.TB, dir, statements string, args ...any) {
	t.Helper()
	const drop = `DROP TRIGGER IF EXISTS audit_no_update%[1]s; DROP TRIGGER IF EXISTS audit_no_delete%[1]s; DROP TRIGGER IF EXISTS audit_no_replace%[1]s;
		DROP TRIGGER IF EXISTS audit_checkpoints_no_update%[2]s; DROP TRIGGER IF EXISTS audit_checkpoints_no_delete%[2]s; `
	if !Postgres() {
		run(t, dir, fmt.Sprintf(drop, "", "")+statements, args...)
		return
	}
	run(t, dir, fmt.Sprintf(drop, " ON audit", " ON audit_checkpoints")+`
		CREATE OR REPLACE FUNCTION audit_append() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.seq IS NULL THEN RETURN NULL; END IF;
			NEW.position := coalesce(NEW.position, (SELECT coalesce(max(position), 0) + 1 FROM audit)); RETURN NEW;
		END $$`)
	run(t, dir, statements, args...)
}

// Refuse makes every further entry of the audit fail.
func Refuse(t testing.TB, dir string) {
	t.Helper()
	if !Postgres() {
		run(t, dir, `CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no record'); END`)
		return
	}
	run(t, dir, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no record'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION refuse()`)
}

// Run runs statements on the database of a state directory without the store, and leaves the triggers as they are.
func Run(t testing.TB, dir, statements string) {
	t.Helper()
	run(t, dir, statements)
}

func run(t testing.TB, dir, statements string, args ...any) {
	t.Helper()
	var db *sql.DB
	if Postgres() {
		c, err := pgx.ParseConfig(URL(dir))
		if err != nil {
			t.Fatal(err)
		}
		c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // takes several statements
		db = stdlib.OpenDB(*c)
		for n := 1; strings.Contains(statements, "?"); n++ {
			statements = strings.Replace(statements, "?", "$"+strconv.Itoa(n), 1)
		}
	} else {
		var err error
		if db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "sandboxmcp.db")); err != nil {
			t.Fatal(err)
		}
	}
	_, err := db.ExecContext(t.Context(), statements, args...)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// Zeros is an expression for as many zero bytes as a column has.
func Zeros(column string) string {
	if Postgres() {
		return "decode(repeat('00', length(" + column + ")), 'hex')"
	}
	return "zeroblob(length(" + column + "))"
}

// Remove takes the database of a state directory away.
func Remove(t testing.TB, dir string) {
	t.Helper()
	if Postgres() {
		schema := schemaOf(dir)
		run(t, dir, "DROP SCHEMA "+schema+" CASCADE; CREATE SCHEMA "+schema)
		return
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(dir, "sandboxmcp.db"+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

package store_test

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// ownRole returns the URL of a database whose search path is that of a role, in the place of one in the URL. The role has
// the rights of the tests.
func ownRole(t *testing.T, dir, name string) string {
	t.Helper()
	u, err := url.Parse(storetest.URL(dir))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	storetest.Run(t, dir, `CREATE ROLE `+name+` LOGIN SUPERUSER; ALTER ROLE `+name+` SET search_path = `+query.Get("search_path"))
	query.Del("search_path")
	query.Set("user", name)
	u.RawQuery = query.Encode()
	return u.String()
}

// A writer of the database can change the search path of a role, or of the database, and then end a connection. The process stays
// with its schema, also on connections that it makes later: in another one the record could be an earlier copy.
func TestEveryConnectionSeesTheSameSchema(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir, role := t.TempDir(), "moved"
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: ownRole(t, dir, role)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = s.Close()
		storetest.Run(t, dir, `DROP OWNED BY `+role+` CASCADE; DROP ROLE `+role)
	}()
	schema := func() (name string, connection int) {
		if err := s.DB().QueryRowContext(t.Context(), `SELECT current_schema(), pg_backend_pid()`).Scan(&name, &connection); err != nil {
			return "", 0 // a connection that was ended
		}
		return name, connection
	}
	was, first := schema()
	other := was + "_copy"
	storetest.Run(t, dir, `CREATE SCHEMA `+other+` AUTHORIZATION `+role+`; CREATE TABLE `+other+`.executions (LIKE executions); ALTER ROLE `+role+` SET search_path = `+other)
	storetest.Run(t, dir, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '`+role+`'`)
	testkit.Until(t, "there is a new connection", func() bool {
		got, now := schema()
		if now != 0 && got != was {
			t.Fatalf("got the schema %s, want %s", got, was)
		}
		return now != 0 && now != first
	})
}

// A writer of the database can give the role a time for each statement that is enough for most, and too short for the comparison of the tables.
func TestARoleKeepsNoComparisonFromBeingMade(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir, role := t.TempDir(), "hurried"
	url := ownRole(t, dir, role)
	storetest.Run(t, dir, `ALTER ROLE `+role+` SET statement_timeout = '1ms'`)
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = s.Close()
		storetest.Run(t, dir, `DROP OWNED BY `+role+` CASCADE; DROP ROLE `+role)
	}()
	for range 2 { // on a new connection, and again
		var most string
		if err = s.DB().QueryRowContext(t.Context(), `SELECT current_setting('statement_timeout')`).Scan(&most); err != nil || most != "0" {
			t.Errorf("got %q and %v, want no limit", most, err)
		}
	}
	if all, err := s.Changed(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got the differences %v and %v, want none", all, err)
	}
}

// synced returns the synchronous_commit of a transaction of a store.
func synced(t *testing.T, s *store.Store) (value string) {
	t.Helper()
	if err := s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT current_setting('synchronous_commit')`).Scan(&value)
	}); err != nil {
		t.Fatal(err)
	}
	return value
}

// A commit waits for the disk, whatever an address, a role or the server says. Policies that a writer of the database makes for rows
// hide nothing: statements fail. Readers are no standby for an address that asks for a server that can be written to.
func TestSettingsOfConnections(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	for set, want := range map[string]string{"off": "on", "local": "local", "remote_apply": "remote_apply"} {
		dir := t.TempDir()
		s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: storetest.URL(dir) + "&target_session_attrs=read-write&row_security=on&synchronous_commit=" + set})
		if err != nil {
			t.Fatal(err)
		}
		var policies string
		err = s.DB().QueryRowContext(t.Context(), `SELECT current_setting('row_security')`).Scan(&policies)
		if got := synced(t, s); err != nil || got != want || policies != "off" {
			t.Errorf("%s: got %q, policies %q and %v, want %q and off", set, got, policies, err, want)
		}
		if err = s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// PostgreSQL takes the text of bytes for one that never changes, although it depends on a setting. So a constraint can hold for each row where it
// is made, and contradict a row to another connection. That reads the row nevertheless, and the constraint is told.
func TestAConstraintHidesNoRow(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir := t.TempDir()
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: storetest.URL(dir) + "&constraint_exclusion=on"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	storetest.Run(t, dir, `INSERT INTO limits VALUES ('hidden', '', ''); SET bytea_output = escape;
		ALTER TABLE limits ADD CONSTRAINT lies CHECK (namespace <> 'hidden' OR CAST('\x61'::bytea AS TEXT) = 'a'); RESET bytea_output`)
	var count int
	if err = s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM limits WHERE namespace = ?`, "hidden").Scan(&count); err != nil || count != 1 {
		t.Errorf("got %d rows and %v, want 1", count, err)
	}
	all, err := s.Changed(t.Context())
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Reason, `the table "limits" has an index, a constraint`) {
		t.Errorf("got %+v and %v, want the constraint", all, err)
	}
}

// However much there is to tell of other tables of the schema, a table of the record that is none is told, so that nothing reads it.
func TestAViewIsToldBesideManyRules(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir := t.TempDir()
	s := open(t, storetest.On(store.Config{Dir: dir}))
	storetest.Run(t, dir, `DO $$ BEGIN FOR n IN 1..1100 LOOP EXECUTE format('CREATE TABLE a%s (x TEXT)', n); EXECUTE format('CREATE RULE r AS ON DELETE TO a%s DO INSTEAD NOTHING', n); END LOOP; END $$;
		ALTER TABLE audit_dropped RENAME TO other; CREATE VIEW audit_dropped AS SELECT * FROM other`)
	defer storetest.Run(t, dir, `DO $$ BEGIN FOR n IN 1..1100 LOOP EXECUTE format('DROP TABLE a%s', n); COMMIT; END LOOP; END $$`) // the server cannot lock all of them at once
	all, err := s.Changed(t.Context())
	if err != nil || !slices.ContainsFunc(all, func(d store.Difference) bool { return d.Table }) {
		t.Errorf("got %d differences and %v, want one of a table", len(all), err)
	}
}

// The server's own synchronous_commit may be changed while there are connections, which take the new one.
func TestCommitsWaitAfterTheServersSettingHasChanged(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir := t.TempDir()
	s := open(t, storetest.On(store.Config{Dir: dir}))
	set := func(change, want string) {
		storetest.Run(t, dir, `ALTER SYSTEM `+change+` synchronous_commit`+map[bool]string{true: " = " + want}[change == "SET"])
		storetest.Run(t, dir, `SELECT pg_reload_conf()`)
		testkit.UntilEqual(t, "what connections that read have", want, func() (got string) {
			if err := s.DB().QueryRowContext(t.Context(), `SELECT current_setting('synchronous_commit')`).Scan(&got); err != nil {
				t.Fatal(err)
			}
			return got
		})
	}
	if got := synced(t, s); got != "on" {
		t.Errorf("before: got %q, want on", got)
	}
	defer set("RESET", "on")
	set("SET", "off")
	for range 3 { // the connection takes the new one when it is idle
		if got := synced(t, s); got != "on" {
			t.Errorf("afterwards: got %q, want on", got)
		}
	}
}

// A writer of the database can make functions with the names of those of PostgreSQL. The one that answers whether a server is a
// standby is that of PostgreSQL, also if the search path names pg_catalog last.
func TestAnotherFunctionSaysNothingAboutStandbys(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	for name, answer := range map[string]string{"nothing": "false", "that it is one": "true"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			u, err := url.Parse(storetest.URL(dir))
			if err != nil {
				t.Fatal(err)
			}
			query := u.Query()
			query.Set("search_path", query.Get("search_path")+",pg_catalog")
			u.RawQuery = query.Encode()
			storetest.Run(t, dir, `CREATE FUNCTION pg_is_in_recovery() RETURNS SETOF bool LANGUAGE sql AS 'SELECT true WHERE `+answer+`'`)
			s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: u.String()})
			if err != nil {
				t.Fatal(err)
			}
			if err = s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Policies for rows that apply to the role of a server hide nothing from it: its statements fail, and the error says why.
func TestPoliciesForRowsAreRefused(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir, role := t.TempDir(), "owner"
	u, err := url.Parse(storetest.URL(dir))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	storetest.Run(t, dir, `CREATE ROLE `+role+` LOGIN; ALTER SCHEMA `+query.Get("search_path")+` OWNER TO `+role)
	query.Set("user", role)
	u.RawQuery = query.Encode()
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = s.Close()
		storetest.Run(t, dir, `DROP OWNED BY `+role+` CASCADE; DROP ROLE `+role)
	}()
	if err = s.Update(t.Context(), addExecution("r1", "completed")); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, dir, `ALTER TABLE executions ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`)
	var n int
	err = s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM executions`).Scan(&n)
	if e := sandboxmcp.AsError(s.ReadError(err)); e == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, "executions") || !strings.Contains(e.Hint, "policies") {
		t.Errorf("got %d rows and %v, want that statements fail because of policies", n, e)
	}
}

// A standby may have an earlier record for any time, and nothing can be recorded there. It is not used, also not for reading.
func TestAStandbyIsRefused(t *testing.T) {
	cfg := store.Config{Dir: t.TempDir(), Postgres: served(t, func(conn net.Conn) { recovering(conn, "t") })}
	_, opened := store.Open(t.Context(), cfg)
	_, looked := store.Look(t.Context(), cfg)
	for name, err := range map[string]error{"Open": opened, "Look": looked} {
		if err == nil || !strings.Contains(err.Error(), "the server that answers is a standby") {
			t.Errorf("%s: got %v, want that it is a standby", name, err)
		}
	}
}

// A connection that cannot be prepared is closed. Otherwise each attempt would keep one of the server.
func TestAConnectionThatIsNotUsedIsClosed(t *testing.T) {
	ended := make(chan struct{}, 10)
	url := served(t, func(conn net.Conn) {
		refusing(recovering(conn, "f"))
		ended <- struct{}{}
	})
	if _, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Postgres: url}); err == nil || !strings.Contains(err.Error(), "no search path") {
		t.Errorf("got %v, want what the server answers", err)
	}
	testkit.Until(t, "the connection is closed", func() bool { return len(ended) > 0 })
}

// served returns the URL of a server whose connections serve answers, each in a goroutine of its own.
func served(t *testing.T, serve func(conn net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				serve(conn)
			}()
		}
	}()
	return "postgres://anna@" + l.Addr().String() + "/records?sslmode=disable"
}

// refusing answers the next question with an error, and waits until the client ends the connection.
func refusing(b *pgproto3.Backend) {
	for {
		message, err := b.Receive()
		if err != nil {
			return
		}
		switch message.(type) {
		case *pgproto3.Terminate:
			return
		case *pgproto3.Sync:
			b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "57014", Message: "no search path"})
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			if b.Flush() != nil {
				return
			}
		}
	}
}

// recovering answers a client as a PostgreSQL server does, as long as it asks whether that is in recovery.
func recovering(conn net.Conn, answer string) (b *pgproto3.Backend) {
	b = pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return b
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return b
		}
		message, err := b.Receive()
		query, ok := message.(*pgproto3.Query)
		if err != nil || !ok || !strings.Contains(query.String, "pg_is_in_recovery") {
			return b
		}
		b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("pg_is_in_recovery"), DataTypeOID: 16, DataTypeSize: 1}}})
		b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(answer)}})
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	}
}

package store_test

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

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
	schema := func() (name string) {
		if err := s.DB().QueryRowContext(t.Context(), `SELECT current_schema()`).Scan(&name); err != nil {
			return err.Error() // a connection that was ended
		}
		return name
	}
	was := schema()
	other := was + "_copy"
	storetest.Run(t, dir, `CREATE SCHEMA `+other+` AUTHORIZATION `+role+`; CREATE TABLE `+other+`.executions (LIKE executions); ALTER ROLE `+role+` SET search_path = `+other)
	storetest.Run(t, dir, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '`+role+`'`)
	testkit.Until(t, "there is a new connection", func() bool { return !strings.Contains(schema(), "terminating") })
	if got := schema(); got != was {
		t.Errorf("got the schema %s, want %s", got, was)
	}
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
		var got, policies string
		err = s.DB().QueryRowContext(t.Context(), `SELECT current_setting('synchronous_commit'), current_setting('row_security')`).Scan(&got, &policies)
		if err != nil || got != want || policies != "off" {
			t.Errorf("%s: got %q, policies %q and %v, want %q and off", set, got, policies, err, want)
		}
		if err = s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A standby may have an earlier record for any time, and nothing can be recorded there. It is not used, also not for reading.
func TestAStandbyIsRefused(t *testing.T) {
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
			go standby(conn)
		}
	}()
	cfg := store.Config{Dir: t.TempDir(), Postgres: "postgres://anna@" + l.Addr().String() + "/records?sslmode=disable"}
	_, opened := store.Open(t.Context(), cfg)
	_, looked := store.Look(t.Context(), cfg)
	for name, err := range map[string]error{"Open": opened, "Look": looked} {
		if err == nil || !strings.Contains(err.Error(), "the server that answers is a standby") {
			t.Errorf("%s: got %v, want that it is a standby", name, err)
		}
	}
}

// standby answers a client as a PostgreSQL server in recovery does, as long as it asks for that.
func standby(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
		message, err := b.Receive()
		query, ok := message.(*pgproto3.Query)
		if err != nil || !ok || !strings.Contains(query.String, "pg_is_in_recovery") {
			return
		}
		b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("pg_is_in_recovery"), DataTypeOID: 16, DataTypeSize: 1}}})
		b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("t")}})
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	}
}

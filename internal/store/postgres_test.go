package store_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// An address that cannot be read is told as one, without its password.
func TestABadAddressOfADatabase(t *testing.T) {
	const url = "postgres://u:hunter22@h:port/db"
	open := func() error {
		_, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Postgres: url})
		return err
	}
	look := func() error {
		_, err := store.Look(t.Context(), store.Config{Dir: t.TempDir(), Postgres: url})
		return err
	}
	for name, err := range map[string]error{"Open": open(), "Look": look()} {
		e := sandboxmcp.AsError(err)
		if e == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Hint, "SANDBOXMCP_DATABASE_URL") || strings.Contains(e.Error(), "hunter22") || strings.Contains(e.Message, "state directory") {
			t.Errorf("%s: got %+v, want that the address is wrong", name, err)
		}
	}
}

// The error of a server that cannot be reached has each cause once.
func TestAServerThatCannotBeReached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close() // nothing listens there
	_, err = store.Open(t.Context(), store.Config{Dir: t.TempDir(), Postgres: "postgres://anna:hunter22@" + address + "/records"})
	want := "backend_unavailable: the PostgreSQL database records at " + address + " cannot be opened: the server cannot be reached: connection refused"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The servers of several machines decide by their own clocks what has expired. A machine whose clock
// is wrong is refused, and notices when its clock becomes wrong later.
func TestAWrongClockIsRefused(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir, off := t.TempDir(), time.Duration(0)
	cfg := storetest.On(store.Config{Dir: dir, Now: func() time.Time { return time.Now().Add(off) }})
	for _, off = range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		s, err := store.Open(t.Context(), cfg)
		if err == nil {
			_ = s.Close()
		}
		if e := sandboxmcp.AsError(err); e == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, "the clock of this machine is") {
			t.Errorf("a clock that is %s off: got %v, want a refusal", off, err)
		}
	}
	off = 30 * time.Second
	s := open(t, cfg)
	if err := s.CheckClock(t.Context()); err != nil {
		t.Errorf("half a minute: got %v, want no error", err)
	}
	off = -time.Hour
	if err := s.CheckClock(t.Context()); err == nil || !strings.Contains(err.Error(), "the clock of this machine is") {
		t.Errorf("a clock that was set back: got %v, want an error", err)
	}
}

// logged is a log that a test reads while others write to it.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// A server of a release without MACs adds nothing to the record of a newer one, whose entries stay as they are.
func TestPostgresMigrationEndsOlderWriters(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	c, err := pgx.ParseConfig(storetest.URL(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*c)
	t.Cleanup(func() { _ = db.Close() })
	p, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("migrations/postgres"), goose.WithLogger(goose.NopLogger()))
	if err == nil {
		_, err = p.UpTo(t.Context(), 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	add := func(seq int, mac string) error {
		_, failed := db.ExecContext(t.Context(), `INSERT INTO audit VALUES (NULL, 'id', 'x', $1, 't', 'a', 'outcome', 'r', 's', 'l', 3, 1.5, 1, 'd', 'w', '{}', '{}', 'p', 'h'`+mac+`)`, seq)
		return failed
	}
	if err = add(1, ""); err == nil {
		_, err = p.UpTo(t.Context(), 4)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err = add(2, ", NULL"); err == nil || !strings.Contains(err.Error(), "older release") {
		t.Errorf("without a MAC: got %v, want a refusal", err)
	}
	if err = add(2, ", 'mac'"); err != nil {
		t.Errorf("with a MAC: got %v, want it added", err)
	}
	if err = add(2, ", 'mac'"); err == nil || !strings.Contains(err.Error(), "append-only") {
		t.Errorf("again: got %v, want a refusal", err)
	}
	if _, err = p.DownTo(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if err = add(3, ""); err != nil {
		t.Errorf("after the way back: got %v, want it added", err)
	}
	var got string
	err = db.QueryRowContext(t.Context(), `SELECT string_agg(position || '.' || seq, ' ' ORDER BY position) FROM audit`).Scan(&got)
	if want := "1.1 2.2 3.3"; err != nil || got != want {
		t.Errorf("got the rows %q and %v, want %q", got, err, want)
	}
}

// After its connection was lost, a process takes its leases again, even if the server holds them for the
// lost connection for a while.
func TestLeasesAreTakenAgain(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir, log := t.TempDir(), &logged{}
	s := open(t, store.Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if _, err := s.TryLease(t.Context(), "owner"); err != nil {
		t.Fatal(err)
	}
	const key = `hashtextextended('sandboxmcp lease ' || current_schema() || ' owner', 0)`
	raw, err := pgx.Connect(t.Context(), storetest.URL(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close(t.Context()) }()
	ask := func(query string) (yes bool) {
		if err := raw.QueryRow(t.Context(), query).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	if !ask(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = ` + key) {
		t.Fatal("the connection was not ended")
	}
	testkit.Until(t, "the lock is free", func() bool { return ask(`SELECT pg_try_advisory_lock(` + key + `)`) })
	testkit.Until(t, "the process has tried to take it", func() bool { return log.has("cannot be taken again yet") })
	if !s.Leased(t.Context(), "owner") {
		t.Error("meanwhile: got it free, want it held by its process")
	}
	ask(`SELECT pg_advisory_unlock(` + key + `)`)
	testkit.Until(t, "the process holds it again", func() bool {
		return !ask(`SELECT pg_try_advisory_lock(`+key+`)`) || !ask(`SELECT pg_advisory_unlock(`+key+`)`)
	})
}

// The id of a database becomes a part of paths, so an id that no migration has made is refused.
func TestAChangedIDOfADatabase(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir := t.TempDir()
	cfg := storetest.On(store.Config{Dir: dir})
	if err := open(t, cfg).Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"x/../../elsewhere", "", "0123456789ABCDEF", "0123456789abcde"} {
		storetest.Tamper(t, dir, `UPDATE database_id SET id = $1`, id)
		s, err := store.Open(t.Context(), cfg)
		if err == nil {
			_ = s.Close()
		}
		if e := sandboxmcp.AsError(err); e == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, "database_id") {
			t.Errorf("the id %q: got %v, want a refusal", id, err)
		}
	}
	storetest.Tamper(t, dir, `UPDATE database_id SET id = '0123456789abcdef'`)
	open(t, cfg)
}

// Functions and views in the schema do not replace those of pg_catalog with the same names, whatever the search path is.
func TestNamesOfTheCatalogAreItsOwn(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir := t.TempDir()
	url, err := url.Parse(storetest.URL(dir))
	if err != nil {
		t.Fatal(err)
	}
	query := url.Query()
	query.Set("search_path", query.Get("search_path")+",pg_catalog")
	url.RawQuery = query.Encode()
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: url.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, c := range []struct{ name, change, want string }{
		{"a view", `CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
			CREATE TRIGGER evil BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION evil();
			CREATE VIEW pg_trigger AS SELECT * FROM pg_catalog.pg_trigger WHERE tgname <> 'evil'`, `"evil"`},
		{"a path of a function", `DROP TRIGGER evil ON audit; ALTER FUNCTION audit_drop() SET search_path = elsewhere`, "audit_no_delete"},
	} {
		storetest.Run(t, dir, c.change)
		all, err := s.Changed(t.Context())
		if err != nil || len(all) != 1 || !strings.Contains(all[0].Reason, c.want) {
			t.Errorf("%s: got %v and %v, want the difference %s", c.name, all, err, c.want)
		}
	}
}

// TestTextsDoNotDependOnSettingsOfARole: a role, a database or an address may set how PostgreSQL encodes and quotes texts for a
// client. Servers read and write the same nevertheless.
func TestTextsDoNotDependOnSettingsOfARole(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir := t.TempDir()
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: storetest.URL(dir) + "&client_encoding=LATIN1&quote_all_identifiers=on"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	const id = "né — 漢"
	if err = s.Update(t.Context(), addExecution(id, "completed")); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Changed(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got the differences %v and %v, want none", all, err)
	}
	o := open(t, store.Config{Dir: dir})
	var got string
	if err := o.DB().QueryRowContext(t.Context(), `SELECT request_id FROM executions`).Scan(&got); err != nil || got != id {
		t.Errorf("got %q and %v, want %q", got, err, id)
	}
}

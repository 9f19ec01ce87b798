package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// postgresVersion is the number of the newest file in migrations/postgres.
const postgresVersion = 7

// idBytes is the length of the id of a database, which is in hexadecimal.
const idBytes = 8

// postgresReaders bounds the connections that read.
const postgresReaders = 4

// deadWriter is the time after which the server ends a transaction whose client says nothing.
// It excludes all other writers until then.
const deadWriter = 30 * time.Second

const (
	// connectTimeout bounds the time in which the server is reached, unless the URL has another.
	connectTimeout = 10 * time.Second
	// deadPeer is the time after which a side that says nothing, and does not even confirm what it was sent,
	// counts as gone. The locks and leases of a machine that has lost its power are then free.
	deadPeer = 20 * time.Second
)

// setDead makes both sides of a connection notice that the other is gone.
func setDead(c *pgx.ConnConfig) {
	const first, every, times = 10, 5, 2 // seconds of silence, then between questions
	for name, value := range map[string]int{"tcp_keepalives_idle": first, "tcp_keepalives_interval": every, "tcp_keepalives_count": times, "tcp_user_timeout": int(deadPeer.Milliseconds())} {
		if _, set := c.RuntimeParams[name]; !set {
			c.RuntimeParams[name] = strconv.Itoa(value)
		}
	}
	d := &net.Dialer{
		Timeout:         c.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: first * time.Second, Interval: every * time.Second, Count: times},
		Control:         userTimeout,
	}
	c.DialFunc = d.DialContext
}

// postgres is a database on a PostgreSQL server, which several machines may share. Its tables
// are in the first schema of the search path of its first connection.
//
// One transaction writes at a time, as with SQLite: each begins by taking an advisory lock. So
// a statement sees everything that was committed before, without conflicts between writers.
type postgres struct {
	config *pgx.ConnConfig
	name   string // what messages call the database; without user and password
	busy   time.Duration
	failed failure
	leases postgresLeases
	path   atomic.Pointer[string] // the search path of every connection; nil: there was none yet
	other  atomic.Bool            // the role and the database gave the newest connection another schema
}

// newPostgres reads a connection URL. It takes only the values of ctx. The error does not contain
// the URL's password.
func newPostgres(ctx context.Context, url string, busy time.Duration, log *slog.Logger) (*postgres, error) {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, &databaseError{reason: "its address is not one of PostgreSQL", hint: "set SANDBOXMCP_DATABASE_URL to postgres://USER:PASSWORD@HOST:PORT/DATABASE"}
	}
	c.RuntimeParams["application_name"] = "sandboxmcp"
	c.RuntimeParams["client_encoding"] = "UTF8"      // with the one of a role, servers would read each other's texts as others
	c.RuntimeParams["quote_all_identifiers"] = "off" // definitions of triggers are compared
	c.RuntimeParams["row_security"] = "off"          // policies that hide rows make statements fail
	c.RuntimeParams["constraint_exclusion"] = "off"  // a constraint that lies would hide the rows of a table from a statement
	c.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(deadWriter.Milliseconds(), 10)
	if _, set := c.RuntimeParams["statement_timeout"]; !set {
		c.RuntimeParams["statement_timeout"] = "0" // with a short one of a role, tables would not be compared; see bounded
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	setDead(c)
	c.ValidateConnect = onPrimary // whatever the URL says: see prepare
	name := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	if strings.HasPrefix(c.Host, "/") { // a directory of sockets
		name = c.Host
	}
	p := &postgres{config: c, busy: busy, name: "PostgreSQL database " + c.Database + " at " + name}
	base := context.WithoutCancel(ctx)
	p.leases.within = func() (context.Context, context.CancelFunc) { return context.WithTimeout(base, leaseTimeout) }
	p.leases.open, p.leases.log = func() *sql.DB { return p.pool(1, nil) }, log
	return p, nil
}

// pool makes a pool of connections, which are opened when they are used. Each wait for the server is bounded.
func (p *postgres) pool(size int, params map[string]string) *sql.DB {
	c := p.config.Copy()
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &bounded{Conn: conn, most: silence + p.busy}, nil
	}
	return p.open(c, size, params)
}

func (p *postgres) open(c *pgx.ConnConfig, size int, params map[string]string) *sql.DB {
	maps.Copy(c.RuntimeParams, params)
	asked := stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false }) // prepareAgain asks anyway
	db := sql.OpenDB(numberedConnector{stdlib.GetConnector(*c, stdlib.OptionAfterConnect(p.prepare), stdlib.OptionResetSession(p.prepareAgain), asked), p})
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

func (p *postgres) writer() *sql.DB { return p.pool(1, nil) }

// forReading are the parameters of connections that read.
var forReading = map[string]string{"default_transaction_read_only": "on"}

func (p *postgres) reader() *sql.DB {
	db := p.pool(postgresReaders, forReading)
	db.SetConnMaxIdleTime(time.Minute)
	return db
}

// begin starts a transaction that excludes all other writers. It waits for them for that long.
func (p *postgres) begin(ctx context.Context, db *sql.DB, timeout time.Duration) (*sql.Tx, error) {
	// At a higher level, a statement would not see what was committed before the lock was taken.
	tx, err := db.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	wait := strconv.FormatInt(max(timeout, time.Millisecond).Milliseconds(), 10)
	if _, err := tx.ExecContext(ctx, lockWriter, wait); err != nil {
		_ = tx.Rollback() // the error that matters is the first
		return nil, err
	}
	return tx, nil
}

// errNoVersion means that there are tables, but their version is gone. For servers and `audit verify` there would be no record.
var errNoVersion = &databaseError{reason: "its table audit has no version in the table goose_db_version", hint: "restore the database from a dump that you trust, or use another schema"}

// version returns the version of the schema, or 0 if there are no tables of this program.
func (p *postgres) version(ctx context.Context, db *sql.DB) (version int, err error) {
	var schema sql.NullString
	var kept, made bool
	if err = db.QueryRowContext(ctx, selectGoose).Scan(&schema, &kept, &made); err != nil {
		return 0, err
	}
	if !schema.Valid {
		return 0, &databaseError{reason: "the schema of its search path does not exist", hint: "make it with CREATE SCHEMA, or leave search_path out of SANDBOXMCP_DATABASE_URL"}
	}
	if made {
		if err = db.QueryRowContext(ctx, selectGooseVersion).Scan(&version); err != nil {
			return 0, err
		}
	}
	if version == 0 && kept {
		return 0, errNoVersion
	}
	if version > postgresVersion {
		return version, &newerError{path: p.name, version: version, known: postgresVersion}
	}
	return version, nil
}

// id returns the id of the database. The id becomes part of paths, so id refuses one that no migration could have made.
func (p *postgres) id(ctx context.Context, db *sql.DB) (id string, err error) {
	if err = db.QueryRowContext(ctx, selectDatabaseID).Scan(&id); err != nil {
		return "", err
	}
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != idBytes || hex.EncodeToString(raw) != id {
		return "", &databaseError{reason: "its table database_id was changed", hint: "restore the database from a dump that you trust"}
	}
	return id, nil
}

// migrate brings the schema to the newest version. Several servers may call it at once: one
// migrates, and the others then find nothing to do.
func (p *postgres) migrate(ctx context.Context) (err error) {
	db := p.open(p.config.Copy(), 2, nil) // one holds the lock of the migration; a migration may take long
	defer func() { err = errors.Join(err, db.Close()) }()
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return err
	}
	files, err := fs.Sub(migrations, "migrations/postgres")
	if err != nil {
		return err
	}
	g, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()), goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	if _, err = g.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// databaseError says why a PostgreSQL database cannot be used, and what to do about it.
type databaseError struct{ reason, hint string }

func (e *databaseError) Error() string { return e.reason }

// Classes of the server's error codes that are about the server and not about a statement.
var serverClasses = map[string]bool{
	"08": true, // connection
	"25": true, // state of the transaction, such as read-only; not [failedBefore]
	"28": true, // authorization
	"3D": true, // no such database
	"40": true, // deadlock, serialization
	"53": true, // resources
	"55": true, // lock not available
	"57": true, // operator intervention, such as shutdown
	"58": true, // system error
	"XX": true, // internal error
}

// failedBefore is the code of a statement after one that failed in the same transaction. The
// server is well, and the savepoint of an Update undoes both.
const failedBefore = "25P02"

// postgresUnusable is unusable for PostgreSQL.
func postgresUnusable(err error) bool {
	if _, ok := errors.AsType[*objectError](err); ok {
		return false
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code != failedBefore && serverClasses[e.Code[:min(2, len(e.Code))]]
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}

// ofPostgres reports whether err comes from the PostgreSQL server or the way to it.
func ofPostgres(err error) bool {
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*databaseError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*newerError](err); ok {
		return true
	}
	return postgresUnusable(err)
}

// postgresReason is reasonOf for PostgreSQL.
func postgresReason(err error) (reason, hint string) {
	if e, ok := errors.AsType[*databaseError](err); ok {
		return e.reason, e.hint
	}
	if e, ok := errors.AsType[*newerError](err); ok {
		return e.Error(), "use the newer release, or another database"
	}
	const primary = "set SANDBOXMCP_DATABASE_URL to the primary server"
	const look = "read the log of the PostgreSQL server"
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok && errors.Is(err, pgconn.ErrStandbyConnection) {
		return "the server that answers is a standby", primary
	}
	if !ok {
		return "the server cannot be reached", "check that it runs and that SANDBOXMCP_DATABASE_URL names it"
	}
	switch {
	case e.Code == "55P03":
		return "another server keeps the database locked", "try again; if it lasts, end the session that holds the lock"
	case e.Code == "53100":
		return "no space is left", "free some space on the disk of the PostgreSQL server"
	case e.Code == "53300":
		return "the server has no connections left", "raise its max_connections"
	case e.Code == "25006":
		return "it is read-only", primary
	case e.Code == "3D000":
		return "it does not exist", "make it with CREATE DATABASE"
	case e.Code == "42501" && e.Routine == "check_enable_rls":
		return e.Message, "disable the policies for rows that others have made on the table, and run `sandboxmcp audit verify`"
	case e.Code == "42501":
		return "permission denied", "give the user of SANDBOXMCP_DATABASE_URL the rights to its schema"
	case strings.HasPrefix(e.Code, "28"):
		return "the server refused the user or the password", "check SANDBOXMCP_DATABASE_URL"
	case strings.HasPrefix(e.Code, "57"):
		return "the server is ending or starting", "try again"
	}
	return e.Message, look
}

// briefError is an error whose text names the innermost causes alone, each once. The driver repeats
// the address, the user and each cause.
type briefError struct{ error }

func (e briefError) Unwrap() error { return e.error }

func (e briefError) Error() string {
	var texts []string
	var visit func(err error)
	visit = func(err error) {
		switch x := err.(type) { //nolint:errorlint // it walks the tree itself
		case interface{ Unwrap() []error }:
			for _, inner := range x.Unwrap() {
				visit(inner)
			}
		case interface{ Unwrap() error }:
			if inner := x.Unwrap(); inner != nil {
				visit(inner)
				return
			}
			texts = append(texts, err.Error())
		default:
			texts = append(texts, err.Error())
		}
	}
	visit(e.error)
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ", ")
}

// numberedConnector makes connections that take the statements of this program, whose
// parameters are written ? or ?1, as SQLite takes them.
type numberedConnector struct {
	driver.Connector
	p *postgres
}

// Connect makes a connection.
func (c numberedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.p.failed.last(); err != nil {
		return nil, err
	}
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = c.p.failed.note(err)
		}
		return nil, err
	}
	conn, ok := inner.(*stdlib.Conn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's connection is %T", inner), inner.Close())
	}
	return &numberedConn{Conn: conn, p: c.p}, nil
}

type numberedConn struct {
	*stdlib.Conn
	p     *postgres
	reads bool // in a transaction that only reads
}

// BeginTx begins a transaction.
func (c *numberedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.BeginTx(ctx, opts)
	if err != nil || !opts.ReadOnly {
		return tx, err
	}
	c.reads = true
	return readingTx{tx, c}, nil
}

// readingTx is a transaction that only reads.
type readingTx struct {
	driver.Tx
	c *numberedConn
}

// Commit ends the transaction.
func (t readingTx) Commit() error {
	t.c.reads = false
	return t.Tx.Commit()
}

// Rollback ends the transaction.
func (t readingTx) Rollback() error {
	t.c.reads = false
	return t.Tx.Rollback()
}

// PrepareContext compiles a statement.
func (c *numberedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.PrepareContext(ctx, numbered(query))
}

// ExecContext runs a statement.
func (c *numberedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.ExecContext(ctx, numbered(query), args)
}

// QueryContext runs a query.
func (c *numberedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.reads {
		if err := c.p.ownNames(ctx, c.Conn.Conn().PgConn()); err != nil {
			return nil, err
		}
	}
	return c.Conn.QueryContext(ctx, numbered(query), args)
}

// CheckNamedValue replaces what PostgreSQL refuses in texts: NUL, and bytes that are not UTF-8.
// SQLite takes them, and callers may send them in any text.
func (c *numberedConn) CheckNamedValue(v *driver.NamedValue) error {
	if _, own := v.Value.(driver.Valuer); !own {
		if text := reflect.ValueOf(v.Value); text.Kind() == reflect.String {
			v.Value = storable(text.String())
		}
	}
	return c.Conn.CheckNamedValue(v)
}

func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// renumbered maps statements to the results of numbered. It stays small: statements are constants of
// the program, except for a few that list the audit.
var renumbered sync.Map

// numbered writes the parameters of a statement as PostgreSQL takes them: ? as $1, $2, … in
// their order, and ?3 as $3. Question marks in text constants stay. [NotIndexed] is left out, and [AllRows]
// is replaced.
func numbered(text string) string {
	if done, ok := renumbered.Load(text); ok {
		return done.(string)
	}
	query := strings.ReplaceAll(strings.ReplaceAll(text, AllRows, allRowsPostgres), NotIndexed, "")
	var b strings.Builder
	n, inText := 0, false
	for i := 0; i < len(query); i++ {
		switch ch := query[i]; {
		case ch == '\'':
			inText = !inText
			b.WriteByte(ch)
		case ch != '?' || inText:
			b.WriteByte(ch)
		case i+1 < len(query) && query[i+1] >= '0' && query[i+1] <= '9':
			b.WriteByte('$')
		default:
			n++
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
		}
	}
	renumbered.Store(text, b.String())
	return b.String()
}

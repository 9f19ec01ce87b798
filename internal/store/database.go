package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
)

const (
	databaseName = "sandboxmcp.db"
	// schemaVersion is the number of the newest file in migrations. Each file sets the
	// database's user_version to its number at its end. Open reads that, because asking
	// goose takes milliseconds.
	schemaVersion = 11
	// applicationID marks a database as ours ("smcp").
	applicationID = 0x736d6370
)

//go:embed migrations/*.sql
var migrations embed.FS

// database knows how to open the file.
type database struct {
	path string // absolute, or MemoryPath
	real string // path with its links followed; see resolve
	dsn  string // without the parts that differ between reader and writer
	sync string
	busy time.Duration
}

func newDatabase(path, durability string, busy time.Duration) (database, error) {
	d := database{path: path, sync: durability, busy: busy}
	if path == MemoryPath {
		// The name is its own and the cache shared, so that reader and writer have the same
		// database.
		d.dsn = "file:" + rand.Text() + "?mode=memory&cache=shared"
		return d, nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return d, err
	}
	d.path = abs
	d.dsn = "file:" + (&url.URL{Path: filepath.ToSlash(abs)}).EscapedPath() + "?mode=rw"
	return d, nil
}

func (d database) memory() bool { return d.path == MemoryPath }

// cacheKiB bounds the pages that a connection caches. Rows are written once and seldom
// read, and SQLite's default of 2 MiB would fill up over some 1 000 runs.
const cacheKiB = 512

// connector makes connections with the parameters. Temporary tables stay in memory,
// because a killed process would leave their file in /tmp.
func (d database) connector(params string) (driver.Connector, error) {
	return sqlite.NewConnector(d.dsn + params + "&_pragma=temp_store(memory)&_pragma=cache_size(-" + strconv.Itoa(cacheKiB) + ")")
}

// logPages bounds the write-ahead log: 32 MiB.
const logPages = 8192

// readerIdle is the time after which an unused connection for reading is closed.
const readerIdle = 5 * time.Second

// single makes a pool of at most one connection, which is opened at its first use.
func single(c driver.Connector) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return db
}

// writer makes the pool for writing. Its transactions take the database's lock at BEGIN.
// They do not wait for it inside SQLite, whose pauses grow to a tenth of a second:
// Store.write waits, in shorter pauses and with a deadline for each caller. Store.tidy
// moves the log into the database, and SQLite does so only if tidy does not keep up.
func (d database) writer() (*sql.DB, error) {
	c, err := d.connector("&_txlock=immediate&_busy_timeout=0&_synchronous=" + d.sync + "&_dqs=0&_pragma=wal_autocheckpoint(" + strconv.Itoa(logPages) + ")")
	if err != nil {
		return nil, err
	}
	return single(preparedConnector{c}), nil
}

// reader makes the pool for reading. A database in memory is read without waiting for the
// writer's table locks. One connection is enough for reads of milliseconds. More would
// cost descriptors for good, because SQLite keeps those of closed connections.
func (d database) reader() (*sql.DB, error) {
	p := "&_busy_timeout=" + strconv.FormatInt(d.busy.Milliseconds(), 10) + "&_query_only=1&_dqs=0"
	if d.memory() {
		p += "&_pragma=read_uncommitted(1)"
	}
	c, err := d.connector(p)
	if err != nil {
		return nil, err
	}
	db := single(c)
	db.SetConnMaxIdleTime(readerIdle)
	return db, nil
}

// prepareFile makes the file if there is none. SQLite would make it with the mode that
// the umask gives.
func (d database) prepareFile() error {
	if d.memory() {
		return nil
	}
	fi, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.create()
	}
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", d.path)
	}
	return writable(d.path)
}

func (d database) create() error {
	f, err := os.OpenFile(d.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// closeFile takes the rights of other users away, if the file is ours. It is called once
// the file is known to be a database of this program.
func (d database) closeFile() error {
	if d.memory() {
		return nil
	}
	fi, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if fi.Mode().Perm()&0o077 == 0 || !owned(fi) {
		return nil
	}
	return os.Chmod(d.path, fileMode)
}

// resolve sets real. The file has to be there. SQLite's files, and those of a [Watch],
// lie beside real.
func (d *database) resolve() (err error) {
	if d.real = d.path; !d.memory() {
		d.real, err = filepath.EvalSymlinks(d.path)
	}
	return err
}

// besides fails if a file that SQLite opens beside the database is not a regular file.
// SQLite would wait for the other end of a FIFO, whatever ctx does.
func (d database) besides() error {
	if d.memory() {
		return nil
	}
	for _, suffix := range []string{"-journal", "-wal", "-shm"} {
		if fi, err := os.Stat(d.real + suffix); err == nil && !fi.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", d.real+suffix)
		}
	}
	return nil
}

// connect makes a connection and reads the version of the schema over it. If it fails,
// the caller still closes conn unless that is nil.
func (d database) connect(ctx context.Context, db *sql.DB) (conn *sql.Conn, version int, err error) {
	if err = d.besides(); err != nil {
		return nil, 0, err
	}
	var app int
	err = retryBusy(ctx, d.busy, func() error {
		if conn == nil {
			if conn, err = db.Conn(ctx); err != nil {
				return err
			}
		}
		return conn.QueryRowContext(ctx, selectVersions).Scan(&version, &app)
	})
	if err != nil {
		return conn, 0, err
	}
	switch {
	case version == 0 && app == 0:
	case app != applicationID:
		return conn, 0, fmt.Errorf("%s is the database of another program", d.path)
	case version > schemaVersion:
		return conn, 0, &newerError{path: d.path, version: version}
	}
	return conn, version, nil
}

// migrate brings the schema to the newest version. If several processes do so at once,
// the lease lets one migrate and the others find it done.
func (d database) migrate(ctx context.Context, dir string) (err error) {
	lease, err := waitLease(ctx, filepath.Join(dir, "migrate.lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release()) }()
	c, err := d.connector("&_busy_timeout=" + strconv.FormatInt(d.busy.Milliseconds(), 10) + "&_journal_mode=WAL&_synchronous=FULL")
	if err != nil {
		return err
	}
	db := single(c)
	defer func() { err = errors.Join(err, db.Close()) }()
	var version, tables int
	err = retryBusy(ctx, d.busy, func() error { return db.QueryRowContext(ctx, selectSchema).Scan(&version, &tables) })
	if err != nil {
		return err
	}
	if version == schemaVersion {
		return nil
	}
	if version == 0 && tables > 0 {
		return fmt.Errorf("%s is the database of another program", d.path)
	}
	if version > 0 && version < firstSignals {
		if err = d.moveSignals(dir); err != nil {
			return err
		}
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate from version %d: %w", version, err)
	}
	return nil
}

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
	"strings"
	"time"

	"modernc.org/sqlite"
)

const (
	databaseName = "sandboxmcp.db"
	// schemaVersion is the number of the newest file in migrations. Each of these files
	// ends by setting the database's user_version to its number. Open reads that version,
	// because asking goose takes milliseconds.
	schemaVersion = 19
	// applicationID marks a database as this program's ("smcp").
	applicationID = 0x736d6370
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// database describes how to open the database file.
type database struct {
	path string // absolute, or MemoryPath
	real string // path with its links resolved; see resolve
	dsn  string // data source name, without the parts that differ between reader and writer
	sync string
	busy time.Duration
}

func newDatabase(path, durability string, busy time.Duration) (database, error) {
	d := database{path: path, sync: durability, busy: busy}
	if path == MemoryPath {
		// A unique name and a shared cache make reader and writer use the same database.
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

// atRest lets a database be read that lies on a read-only file system and is closed: SQLite would make its files beside it. If
// they are there, a process has it open, or was killed, and its newest rows are in them.
func (d *database) atRest() {
	if d.memory() || !readOnly(filepath.Dir(d.real)) {
		return
	}
	for _, suffix := range []string{"-journal", "-wal", "-shm"} {
		if _, err := os.Lstat(d.real + suffix); !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	d.dsn = strings.TrimSuffix(d.dsn, "rw") + "ro&immutable=1"
}

func (d database) memory() bool { return d.path == MemoryPath }

// cacheKiB bounds the pages that a connection caches. Rows are written once and rarely
// read. A page in the cache takes 8 KiB of memory, because the allocator rounds up to powers of two.
// SQLite's default of 2 MiB would fill up after about 1,000 runs.
const cacheKiB = 128

// connector makes connections with these parameters. Temporary tables stay in memory,
// because a killed process would leave their file in /tmp.
func (d database) connector(params string) (driver.Connector, error) {
	return sqlite.NewConnector(d.dsn + params + "&_pragma=temp_store(memory)&_pragma=cache_size(-" + strconv.Itoa(cacheKiB) + ")")
}

// logPages bounds the write-ahead log, in pages: 32 MiB.
const logPages = 8192

// readerIdle is the time after which an unused read connection is closed.
const readerIdle = 5 * time.Second

// single makes a pool of at most one connection, which is opened when it is first used.
func single(c driver.Connector) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return db
}

// writer makes the pool for writing. Its transactions take the database's lock at BEGIN,
// and fail at once if it is taken. SQLite's own wait would pause for up to a tenth of a
// second at a time. Store.write waits instead, in shorter pauses and with a deadline for
// each caller. Store.tidy moves the log into the database. SQLite itself does that only if
// tidy cannot keep up.
func (d database) writer() (*sql.DB, error) {
	c, err := d.connector("&_txlock=immediate&_busy_timeout=0&_synchronous=" + d.sync + "&_dqs=0&_pragma=wal_autocheckpoint(" + strconv.Itoa(logPages) + ")")
	if err != nil {
		return nil, err
	}
	return single(preparedConnector{c}), nil
}

// readers bounds the connections that read. Reads take milliseconds, except for those that read
// the whole audit, of which an engine does two at once: a third connection lets runs look up
// their secrets meanwhile. More would use up descriptors, because SQLite keeps those of closed
// connections open.
const readers = 3

// reader makes the pool for reading. A database in memory is read without waiting for the
// writer's table locks.
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
	db.SetMaxOpenConns(readers)
	db.SetConnMaxIdleTime(readerIdle)
	return db, nil
}

// prepareFile makes the file if it does not exist. SQLite would give it the mode of the
// umask.
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

// closeFile removes the permissions of other users if this user owns the file. It is called
// after the file was recognized as a database of this program.
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

// resolve sets real. The file must exist. The files of SQLite and of a [Watch] are in the
// same directory as real.
func (d *database) resolve() (err error) {
	if d.real = d.path; !d.memory() {
		d.real, err = filepath.EvalSymlinks(d.path)
	}
	return err
}

// besides fails if a file that SQLite opens next to the database is not a regular file. If
// it were a FIFO, SQLite would block and ignore ctx.
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

// connect opens a connection and reads the schema version. On error the caller must close
// conn if it is not nil.
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
		return conn, 0, &newerError{path: d.path, version: version, known: schemaVersion}
	}
	return conn, version, nil
}

// migrate brings the schema to the newest version. Several processes may call it at once:
// the lease lets one migrate, and the others then find nothing to do.
func (d database) migrate(ctx context.Context, dir string) (err error) {
	lease, err := waitLease(ctx, func() (*Lease, error) { return tryLease(filepath.Join(dir, "migrate.lock")) })
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
	if err := up(ctx, db); err != nil {
		return fmt.Errorf("migrate from version %d: %w", version, err)
	}
	return nil
}

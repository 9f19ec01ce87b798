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
	// schemaVersion is the number of the newest file in migrations. Each of them
	// ends with setting the database's user_version to its own number, which is
	// what Open looks at: asking goose takes milliseconds, this takes none.
	schemaVersion = 10
	// applicationID marks a database as ours ("smcp").
	applicationID = 0x736d6370
)

//go:embed migrations/*.sql
var migrations embed.FS

// database knows how to open the file.
type database struct {
	path string // absolute, or MemoryPath
	real string // path, with links followed; see resolve
	dsn  string // without the parts that differ between reader and writer
	sync string
	busy time.Duration
}

func newDatabase(path, durability string, busy time.Duration) (database, error) {
	d := database{path: path, sync: durability, busy: busy}
	if path == MemoryPath {
		// A name of its own and a shared cache: the reader's connections see
		// what the writer's has.
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

// cacheKiB bounds the pages that a connection keeps: rows are written once and
// seldom read, and SQLite's own bound of 2 MiB would fill up over some 1 000 runs.
const cacheKiB = 512

// connector knows how to make a connection with the parameters. Temporary tables
// stay in memory: a process that is killed would leave its file in /tmp.
func (d database) connector(params string) (driver.Connector, error) {
	return sqlite.NewConnector(d.dsn + params + "&_pragma=temp_store(memory)&_pragma=cache_size(-" + strconv.Itoa(cacheKiB) + ")")
}

// logPages is how long the log may grow: 32 MiB.
const logPages = 8192

// readerIdle is how long the connection for reading is kept when nobody uses it.
const readerIdle = 5 * time.Second

// single makes a pool of one connection; it is not made yet.
func single(c driver.Connector) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return db
}

// writer has one connection and takes the lock at "begin". It does not wait
// inside SQLite, whose steps grow to a tenth of a second: whoever writes waits,
// in shorter steps and with a deadline for each caller. The log is moved into
// the database beside it (tidy), and by itself only when that does not keep up.
func (d database) writer() (*sql.DB, error) {
	c, err := d.connector("&_txlock=immediate&_busy_timeout=0&_synchronous=" + d.sync + "&_dqs=0&_pragma=wal_autocheckpoint(" + strconv.Itoa(logPages) + ")")
	if err != nil {
		return nil, err
	}
	return single(preparedConnector{c}), nil
}

// reader may not write. In memory it does not wait for the writer's tables. One
// is enough for reads of milliseconds, and SQLite keeps the descriptor of a
// closed connection for the next one: the most that were ever open at once.
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

// prepareFile makes the file when it is not there, so that SQLite does not make
// it with the mode that the umask happens to give.
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

// closeFile takes the file away from others when it is ours, after it was seen
// to be a database of ours.
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

// resolve follows the links in the path of a database that is there. SQLite's own files,
// and ours, lie beside the file itself.
func (d *database) resolve() (err error) {
	if d.real = d.path; !d.memory() {
		d.real, err = filepath.EvalSymlinks(d.path)
	}
	return err
}

// besides refuses anything but regular files under the names that SQLite opens beside
// the database: it would wait for the other end of a FIFO, whatever ctx does.
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

// connect makes the writer's connection and reads the schema's version over it.
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

// migrate brings the schema to the newest version. Another process may be doing
// the same; the lease makes the second one find it done.
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
		if err := d.moveSignals(dir); err != nil {
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

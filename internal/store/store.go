// Package store is the state directory: one SQLite database in WAL mode with its schema and
// migrations, and content-addressed blobs. Instead of SQLite it can use a PostgreSQL database,
// which the servers of several machines share; then the directory has the blobs.
//
// Within a process one goroutine writes at a time ([Store.Update]). It runs all waiting
// Updates in its transaction. [Store.Keep] writes to a file instead and lets a later transaction
// do the rest. Between processes the database's own lock decides. Any number
// of servers and commands may have the directory open at once. Each sees what the others
// have committed, and none waits longer than the busy timeout.
//
// A [Watch] notifies processes of each other's changes. A [Lease] lets only one of them do
// something at a time.
//
// Other packages own their tables and keep their statements in a file sql.go. This package
// creates the tables and does not read them. The only exception is [Executions]: it counts
// rows for commands that inspect a directory without opening it.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// DefaultBusyTimeout is how long a write waits for other processes.
const DefaultBusyTimeout = 5 * time.Second

// MemoryPath as [Config] SQLitePath selects a database in memory, which ends with the
// Store.
const MemoryPath = ":memory:"

// Values of Synchronous in [Config].
const (
	// SynchronousNormal loses no committed data if the process is killed. A power cut may
	// lose the last commits.
	SynchronousNormal = "normal"
	// SynchronousFull waits for the disk at every commit.
	SynchronousFull = "full"
)

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// Config says where the state is stored and when it is synced to the disk.
type Config struct {
	Dir         string             // the state directory; made if it is missing
	Postgres    string             // connection URL of a PostgreSQL database; empty: SQLite
	Objects     sandboxmcp.Objects // keeps the blobs of a PostgreSQL database; nil: they are on this machine
	SQLitePath  string             // the database file; empty: sandboxmcp.db in Dir; MemoryPath: in memory, and Close removes the blobs
	Synchronous string             // SynchronousNormal (the default) or SynchronousFull
	BusyTimeout time.Duration      // 0: DefaultBusyTimeout
	Logger      *slog.Logger       // nil: nothing is logged
	Notes       NoteMakers         // make the steps of notes that other processes have kept; nil: such notes are left alone

	// NotesKey returns a secret of the processes that share the database. It is called at most once, when it
	// is needed. Without the secret, a writer of the database cannot mark notes as carried out. nil: there is none.
	NotesKey func() ([]byte, error)

	Free FreeSpace        // nil: the kernel's answer
	Now  func() time.Time // nil: time.Now
}

// Store is an open state directory. All its methods may be called concurrently.
type Store struct {
	dir    string
	path   string
	pg     *postgres // nil: the database is SQLite's
	full   bool      // every commit waits for the disk
	now    func() time.Time
	log    *slog.Logger
	busy   time.Duration
	reader *sql.DB
	writer *sql.DB
	conn   *sql.Conn // SQLite: the writer's only connection; used by the goroutine that has the turn

	line      line
	turn      chan struct{} // full while a goroutine writes
	untidy    int           // transactions since the last tidy; used by the goroutine that has the turn
	tidying   atomic.Bool   // tidy is running
	notes     notes
	followers followers
	work      sync.WaitGroup // running Updates and tidy
	close     func() error

	blobs blobDir
	far   farBlobs
	space *spaceCheck

	real    string    // path with its links resolved
	bell    *listener // PostgreSQL: wakes the watches; nil: SQLite
	watchMu sync.Mutex
	watches map[string]*Watch // by topic
}

// Open opens the state directory and makes what is missing: the directory and its parents
// (mode 0700), the database (0600) and its tables. It removes other users' permissions from
// a directory that holds a state or is empty. It refuses a directory of another user. It
// also refuses a directory that other users may read and that holds other files.
//
// It fails with [sandboxmcp.CodeBackendUnavailable] and a message that names the directory.
// ctx bounds only Open itself. The caller calls Close.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{
		dir:  cfg.Dir,
		log:  cfg.Logger,
		busy: cmp.Or(cfg.BusyTimeout, DefaultBusyTimeout),
		turn: make(chan struct{}, 1),
		now:  cfg.Now,
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.line.work = &s.work
	s.space = newSpaceCheck(cfg)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.open(ctx, cfg); err != nil {
		return nil, s.explain("opened", err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, cfg Config) error {
	if cfg.Dir == "" {
		return errors.New("no state directory is set")
	}
	durability := cmp.Or(cfg.Synchronous, SynchronousNormal)
	if durability != SynchronousNormal && durability != SynchronousFull {
		return &sandboxmcp.Error{
			Code:    sandboxmcp.CodeInvalidArgument,
			Message: fmt.Sprintf("synchronous is %s; use normal or full", sandboxmcp.Quote(durability)),
		}
	}
	s.full = durability == SynchronousFull
	s.notes.direct = true
	if err := PrepareDir(s.dir); err != nil {
		return err
	}
	s.path = Path(cfg)
	if cfg.Postgres != "" {
		return s.openPostgres(ctx, cfg)
	}
	if cfg.Objects != nil {
		return &sandboxmcp.Error{Code: sandboxmcp.CodeInvalidArgument, Message: "an object store needs a PostgreSQL database", Hint: "set database_url as well, or unset blob_url"}
	}
	d, err := newDatabase(s.path, durability, s.busy)
	if err != nil {
		return err
	}
	if err = d.prepareFile(); err != nil {
		return err
	}
	if err = d.resolve(); err != nil {
		return err
	}
	s.real, s.blobs.passing = d.real, d.memory()
	if err = s.prepareNotes(d, cfg); err != nil {
		return err
	}
	if s.blobs.dir, err = d.blobsOf(s.dir); err != nil {
		return err
	}
	if err := s.connect(ctx, d); err != nil {
		return errors.Join(err, s.shutDatabase())
	}
	s.close = sync.OnceValue(s.shut)
	return nil
}

// prepareNotes allows files with notes. It does not for a database of another user, who could
// not use the files that this process makes.
func (s *Store) prepareNotes(d database, cfg Config) error {
	if d.memory() || !canLease {
		return nil
	}
	fi, err := os.Stat(d.real)
	if err == nil && owned(fi) {
		s.notes.dir, s.notes.makers, s.notes.key, s.notes.direct = NotesDir(d.real), cfg.Notes, newNotesKey(cfg.NotesKey), s.full
	}
	return err
}

// openPostgres opens a PostgreSQL database and makes or migrates its tables.
func (s *Store) openPostgres(ctx context.Context, cfg Config) (err error) {
	if s.pg, err = newPostgres(ctx, cfg.Postgres, s.busy, s.log); err != nil {
		s.pg = &postgres{name: "PostgreSQL database"} // for the message
		return err
	}
	s.real, s.writer, s.reader = s.path, s.pg.writer(), s.pg.reader()
	version, err := s.pg.version(ctx, s.writer)
	if err == nil {
		err = s.pg.sameSchema(s.dir, true)
	}
	if err == nil && version < postgresVersion {
		err = s.pg.migrate(ctx)
	}
	var id string
	if err == nil {
		id, err = s.pg.id(ctx, s.reader)
	}
	if err == nil {
		err = s.checkClock(ctx)
	}
	if err != nil {
		return errors.Join(err, s.shutDatabase())
	}
	s.blobs.dir = filepath.Join(s.dir, "blobs-"+id)
	s.far = farBlobs{cfg.Objects, id}
	s.bell = s.pg.listen(ctx, s.wake)
	s.close = sync.OnceValue(s.shut)
	return nil
}

// connect opens the database and migrates its schema.
func (s *Store) connect(ctx context.Context, d database) (err error) {
	if s.writer, err = d.writer(); err != nil {
		return err
	}
	if s.reader, err = d.reader(); err != nil {
		return err
	}
	conn, version, err := d.connect(ctx, s.writer)
	s.conn = conn
	if err != nil {
		return err
	}
	if version != schemaVersion {
		if err := d.migrate(ctx, s.dir); err != nil {
			return err
		}
	}
	if version > 0 { // a new database has no topics
		if err := s.alignSignals(ctx, version < firstSignals); err != nil {
			return err
		}
	}
	return d.closeFile()
}

// Dir returns the state directory.
func (s *Store) Dir() string { return s.dir }

// Path returns the path of the database, or [MemoryPath]. For a PostgreSQL database it is a
// path in the state directory that has no file; files that belong to the database are beside it.
func (s *Store) Path() string { return s.path }

// DB returns the database for reading. Statements that write fail; use [Store.Update]. A
// query sees every Update that returned before it; before reading what notes make, call
// [Store.Settle]. The connection is opened when it is first used.
func (s *Store) DB() *sql.DB { return s.reader }

// Sync returns once everything that was committed before is on the disk. With
// [SynchronousFull], and for a database in memory, it returns at once.
func (s *Store) Sync() error {
	if s.full || s.path == MemoryPath || s.pg != nil { // PostgreSQL has synced each commit
		return nil
	}
	f, err := plainfile.Open(s.path + "-wal")
	if errors.Is(err, fs.ErrNotExist) { // the log was moved into the database, which has synced it
		return nil
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return s.explain("written", err)
	}
	return nil
}

// Close finishes waiting Updates, refuses new ones and closes the database. It may be
// called more than once, and always returns the same error.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	s.line.close()
	s.cancelFlush()
	s.work.Wait()
	if err := errors.Join(s.closeNotes(), s.shutDatabase(), s.blobs.close()); err != nil {
		return fmt.Errorf("close the state directory %s: %w", s.dir, err)
	}
	return nil
}

// shutDatabase closes the connections that connect has opened.
func (s *Store) shutDatabase() error {
	var errs []error
	if s.pg != nil {
		s.bell.close()
		errs = append(errs, s.pg.leases.close())
	}
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.Close())
	}
	return errors.Join(errs...)
}

// Answers asks the database something, and returns an error with a code if it does not answer before ctx ends.
func (s *Store) Answers(ctx context.Context) error {
	var yes bool
	err := s.reader.QueryRowContext(ctx, selectTrue).Scan(&yes)
	if s.pg != nil {
		err = s.pg.unanswered(ctx, err)
	}
	return s.ReadError(err)
}

// explain returns the error that callers get for err. verb says which operation failed.
// Errors with a code, and those of a context, are returned unchanged.
func (s *Store) explain(verb string, err error) error {
	if _, ok := errors.AsType[*sandboxmcp.Error](err); ok {
		return err
	}
	if stuck, ok := errors.AsType[*stuckError](err); ok {
		return &sandboxmcp.Error{
			Code:    sandboxmcp.CodeBackendUnavailable,
			Message: fmt.Sprintf("the records in %s cannot be brought into the database: %s", stuck.file, stuck.error),
			Hint:    "read the server's log; to go on without these records, end the server and move the file away",
			Err:     err,
		}
	}
	if o, ok := errors.AsType[*objectError](err); ok {
		return &sandboxmcp.Error{Code: sandboxmcp.CodeBackendUnavailable, Message: fmt.Sprintf("a file cannot be %s: %s", verb, o.error), Hint: "check blob_url, the key of the object store, and that the store answers", Err: err}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if s.pg != nil {
		if _, ok := errors.AsType[*dirError](err); !ok && ofPostgres(err) {
			reason, hint := postgresReason(err)
			if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
				err = briefError{err}
			}
			return &sandboxmcp.Error{Code: sandboxmcp.CodeBackendUnavailable, Message: fmt.Sprintf("the %s cannot be %s: %s", s.pg.name, verb, reason), Hint: hint, Err: err}
		}
	}
	reason, hint := reasonOf(err)
	where := s.dir
	if s.path != "" && s.path != MemoryPath && filepath.Dir(s.path) != filepath.Clean(s.dir) {
		where += " (database " + s.path + ")"
	}
	return &sandboxmcp.Error{
		Code:    sandboxmcp.CodeBackendUnavailable,
		Message: fmt.Sprintf("the state directory %s cannot be %s: %s", where, verb, reason),
		Hint:    hint,
		Err:     err,
	}
}

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

	"github.com/sandboxmcp/sandboxmcp"
)

// View is a database that is opened for reading only. It creates and writes no file, does
// not migrate, and never delays a writer. Only notes that other processes have kept are
// carried out before, if [Config] Notes is set.
type View struct {
	s       *Store
	version int
}

// Look opens the database of a state directory for reading. It returns nil if the
// directory or the database is missing, or the database is in memory. The errors are those
// of [Open]. The caller calls Close.
func Look(ctx context.Context, cfg Config) (*View, error) {
	s := &Store{dir: cfg.Dir, path: Path(cfg), busy: cmp.Or(cfg.BusyTimeout, DefaultBusyTimeout)}
	if cfg.Postgres != "" {
		return s.lookPostgres(ctx, cfg)
	}
	if s.path == MemoryPath {
		return nil, nil
	}
	fi, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
	case !fi.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", s.path)
	case !owned(fi): // SQLite would make files beside it, which would belong to this user
		err = &dirError{reason: "its database belongs to another user"}
	}
	if err != nil {
		return nil, s.explain("read", err)
	}
	v := &View{s: s}
	if err = v.open(ctx); err != nil {
		return nil, s.explain("read", errors.Join(err, s.shutDatabase()))
	}
	if v.version == 0 { // another process is creating it
		if err = errors.Join(v.unversioned(ctx), v.Close()); err != nil {
			return nil, s.explain("read", err)
		}
		return nil, nil
	}
	if err = v.settle(ctx, cfg); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// settle carries out the notes of other processes, if there are any.
func (v *View) settle(ctx context.Context, cfg Config) error {
	if cfg.Notes == nil || !v.Current() || !canLease {
		return nil
	}
	v.s.notes.dir = NotesDir(v.s.real)
	if others, err := v.s.unsettled(ctx); err != nil || len(others) == 0 {
		return v.s.ReadError(err)
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(s.Settle(ctx), s.Close())
}

// lookPostgres is Look for a PostgreSQL database.
func (s *Store) lookPostgres(ctx context.Context, cfg Config) (*View, error) {
	pg, err := newPostgres(ctx, cfg.Postgres, DefaultBusyTimeout, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, (&Store{pg: &postgres{name: "PostgreSQL database"}}).explain("read", err)
	}
	s.pg, s.reader = pg, pg.reader()
	v := &View{s: s}
	if v.version, err = pg.version(ctx, s.reader); err == nil {
		err = pg.sameSchema(s.dir, false)
	}
	if err != nil {
		return nil, s.explain("read", errors.Join(err, s.shutDatabase()))
	}
	if v.version == 0 {
		return nil, v.Close()
	}
	return v, nil
}

func (v *View) open(ctx context.Context) error {
	d, err := newDatabase(v.s.path, SynchronousNormal, v.s.busy)
	if err != nil {
		return err
	}
	if err = d.resolve(); err != nil {
		return err
	}
	d.atRest()
	v.s.real = d.real
	if v.s.reader, err = d.reader(); err != nil {
		return err
	}
	conn, version, err := d.connect(ctx, v.s.reader)
	if conn != nil { // returns the connection to the pool
		err = errors.Join(err, conn.Close())
	}
	v.version = version
	return err
}

// unversioned fails if there are tables in a database without a version. For readers there would be no record.
func (v *View) unversioned(ctx context.Context) error {
	var version, tables int
	err := v.s.reader.QueryRowContext(ctx, selectSchema).Scan(&version, &tables)
	if err == nil && version == 0 && tables > 0 {
		err = fmt.Errorf("%s has tables and no version, so it is the database of another program or was changed", v.s.path)
	}
	return err
}

// DB returns the database for reading.
func (v *View) DB() *sql.DB { return v.s.reader }

// Current reports whether the schema is the newest. The next [Open] migrates an older one.
func (v *View) Current() bool {
	if v.s.pg != nil {
		return v.version == postgresVersion
	}
	return v.version == schemaVersion
}

// Version returns the version of the schema.
func (v *View) Version() int { return v.version }

// Newest returns the newest version of the schema that this release knows.
func Newest(cfg Config) int {
	if cfg.Postgres != "" {
		return postgresVersion
	}
	return schemaVersion
}

// Name returns a name of a configuration's database for persons. It has no password.
func Name(ctx context.Context, cfg Config) string {
	if cfg.Postgres == "" {
		return Path(cfg)
	}
	p, err := newPostgres(ctx, cfg.Postgres, DefaultBusyTimeout, slog.New(slog.DiscardHandler))
	if err != nil {
		return "PostgreSQL"
	}
	return p.name
}

// Close closes the database.
func (v *View) Close() error { return v.s.shutDatabase() }

// Path returns the path of a configuration's database, or [MemoryPath].
func Path(cfg Config) string {
	if cfg.Postgres != "" {
		return filepath.Join(cfg.Dir, "postgres")
	}
	return cmp.Or(cfg.SQLitePath, filepath.Join(cfg.Dir, databaseName))
}

// Executions counts the stored executions of a state directory by status. It opens the
// database with [Look]. A status without executions is absent.
func Executions(ctx context.Context, cfg Config) (map[sandboxmcp.Status]int64, error) {
	kept := map[sandboxmcp.Status]int64{}
	v, err := Look(ctx, cfg)
	if v == nil || err != nil {
		return kept, err
	}
	err = v.executions(ctx, kept)
	if err = errors.Join(err, v.Close()); err != nil {
		return nil, v.s.explain("read", err)
	}
	return kept, nil
}

func (v *View) executions(ctx context.Context, into map[sandboxmcp.Status]int64) error {
	rows, err := v.DB().QueryContext(ctx, countByStatus)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var status sandboxmcp.Status
		var n int64
		if err := rows.Scan(&status, &n); err != nil {
			return err
		}
		into[status] = n
	}
	return rows.Err()
}

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/pressly/goose/v3"
)

// A writer of the database can also change the schema: a trigger can remove rows, and a view can show
// other rows. So the schema is compared with one that the migrations make anew.

const (
	maxObjects    = 1000    // objects of a schema that are compared
	maxDefinition = 1 << 16 // characters of a definition that are compared
)

// Difference is an object of the schema that the migrations do not make, or make otherwise.
type Difference struct {
	Reason string
	Table  bool // it is a table, or stands in place of one, so its rows prove nothing
}

// object is a row of sqlite_schema.
type object struct{ kind, name, table, sql string }

// made returns the objects that the migrations make. It takes milliseconds, so only checks call it.
var made = sync.OnceValues(func() (map[string]object, error) {
	ctx := context.Background() //nolint:forbidigo // all callers share the answer
	d, err := newDatabase(MemoryPath, SynchronousNormal, 0)
	if err != nil {
		return nil, err
	}
	c, err := d.connector("")
	if err != nil {
		return nil, err
	}
	db := single(c)
	defer db.Close()
	if err = up(ctx, db); err != nil {
		return nil, err
	}
	return objects(ctx, db)
})

// up carries out the migrations that a database does not have yet.
func up(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err == nil {
		_, err = p.Up(ctx)
	}
	return err
}

func objects(ctx context.Context, db Querier) (map[string]object, error) {
	rows, err := db.QueryContext(ctx, selectObjects, maxDefinition, maxObjects)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]object{}
	for rows.Next() {
		var o object
		if err := rows.Scan(&o.kind, &o.name, &o.table, &o.sql); err != nil {
			return nil, err
		}
		all[o.name] = o
	}
	return all, rows.Err()
}

// Differences compares the tables and indexes of the audit and of notes, and all triggers and views, with what
// the migrations make. If they are the same, it checks that the audit's indexes have all rows of the
// audit. db is of this store. In PostgreSQL it compares triggers and what they call; see changedPostgres.
func (s *Store) Differences(ctx context.Context, db Querier) ([]Difference, error) {
	all, err := s.changed(ctx, db)
	if err != nil || len(all) > 0 || s.pg != nil {
		return all, err
	}
	return unindexed(ctx, db)
}

// Changed is Differences without the check of the indexes, which reads the whole audit. Of a database in memory nothing is compared.
// If a newer release has migrated the database meanwhile, or a writer of the database says so, Changed fails. An older version is a
// difference: no release migrates back.
func (s *Store) Changed(ctx context.Context) ([]Difference, error) {
	if s.path == MemoryPath {
		return nil, nil
	}
	db, end := s.apart(ctx)
	defer end()
	all, err := s.changed(ctx, db)
	if err != nil {
		return nil, err
	}
	var version int
	want := schemaVersion
	if s.pg != nil {
		want = postgresVersion
		version, err = s.pg.version(ctx, db)
	} else {
		err = db.QueryRowContext(ctx, selectUserVersion).Scan(&version)
	}
	_, newer := errors.AsType[*newerError](err)
	switch {
	case newer:
		return nil, err
	case err == nil && version > want:
		return nil, &newerError{path: s.path, version: version, known: want}
	case len(all) > 0: // they may be why there is no version
		return all, nil
	case errors.Is(err, errNoVersion) || err == nil && version < want:
		return []Difference{{fmt.Sprintf("the database says that its tables have version %d, and this program has given them %d", version, want), false}}, nil
	}
	return nil, err
}

// apart returns a database for reading whose connection is a new one, so that it has the search path that the role and the database
// give by now; see postgres.other. For SQLite, or if there can be no new connection, it is that of [Store.DB]: a writer of a PostgreSQL
// database can also keep a server from connecting.
func (s *Store) apart(ctx context.Context) (db *sql.DB, end func()) {
	if s.pg != nil {
		db = s.pg.pool(1, forReading)
		err := db.PingContext(ctx)
		if err == nil {
			return db, func() { _ = db.Close() }
		}
		if err = errors.Join(err, db.Close()); ctx.Err() == nil {
			s.log.Warn("a new connection to the database cannot be made", "error", err)
		}
	}
	return s.reader, func() {}
}

func (s *Store) changed(ctx context.Context, db Querier) ([]Difference, error) {
	if s.pg != nil {
		all, err := changedPostgres(ctx, db)
		if err == nil && s.pg.other.Load() {
			all = append(all, Difference{"the search path of the role or of the database leads to another schema by now, where other servers may keep another record", false})
		}
		return all, err
	}
	want, err := made()
	if err != nil {
		return nil, fmt.Errorf("make the schema to compare with: %w", err)
	}
	got, err := objects(ctx, db)
	if err != nil {
		return nil, err
	}
	return compareObjects(want, got), nil
}

// Differences is [Store.Differences].
func (v *View) Differences(ctx context.Context, db Querier) ([]Difference, error) {
	return v.s.Differences(ctx, db)
}

// unindexed returns what SQLite finds wrong with the audit and its indexes. An index that was made with another
// definition than the schema says has too few rows.
func unindexed(ctx context.Context, db Querier) (all []Difference, err error) {
	rows, err := db.QueryContext(ctx, checkAudit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var found string
		if err := rows.Scan(&found); err != nil {
			return nil, err
		}
		if found != "ok" {
			all = append(all, Difference{Reason: "table audit is damaged, or its indexes were made otherwise: " + found})
		}
	}
	return all, rows.Err()
}

func compareObjects(want, got map[string]object) (all []Difference) {
	for name, o := range got {
		w, known := want[name]
		switch {
		case !known:
			all = append(all, Difference{fmt.Sprintf("the %s %.100q of table %.100q is not of this program", o.kind, name, o.table), o.kind == "table" || o.kind == "view"})
		case o != w:
			all = append(all, Difference{fmt.Sprintf("the %s %s is not the one that this program has made", w.kind, name), w.kind == "table"})
		}
	}
	for name, w := range want {
		if _, there := got[name]; !there {
			all = append(all, Difference{fmt.Sprintf("the %s %s is missing", w.kind, name), w.kind == "table"})
		}
	}
	slices.SortFunc(all, func(x, y Difference) int { return strings.Compare(x.Reason, y.Reason) })
	return all
}

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp"
)

// Executions counts the executions that a state directory keeps, by status, for
// someone who only looks: nothing is made, brought up to date or written, and
// nobody who works there has to wait. A status of which there is none is
// absent. A directory or a database that is not there keeps none, and neither
// does one in memory. The errors are those of [Open].
func Executions(ctx context.Context, cfg Config) (map[sandboxmcp.Status]int64, error) {
	s := &Store{dir: cfg.Dir, path: cmp.Or(cfg.SQLitePath, filepath.Join(cfg.Dir, databaseName)), busy: cmp.Or(cfg.BusyTimeout, DefaultBusyTimeout)}
	kept := map[sandboxmcp.Status]int64{}
	if s.path == MemoryPath {
		return kept, nil
	}
	fi, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return kept, nil
	case err == nil && !fi.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", s.path)
	case err == nil && !owned(fi): // files that reading makes beside it would not be theirs
		err = &dirError{reason: "its database belongs to another user"}
	case err == nil:
		err = s.countExecutions(ctx, kept)
	}
	if err != nil {
		return nil, s.explain("read", err)
	}
	return kept, nil
}

func (s *Store) countExecutions(ctx context.Context, into map[sandboxmcp.Status]int64) (err error) {
	d, err := newDatabase(s.path, SynchronousNormal, s.busy)
	if err != nil {
		return err
	}
	if s.reader, err = d.reader(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.shutDatabase()) }()
	conn, version, err := d.connect(ctx, s.reader)
	s.conn = conn
	if err != nil || version == 0 { // 0: somebody is making it right now
		return err
	}
	rows, err := conn.QueryContext(ctx, `SELECT status, count(*) FROM executions GROUP BY status`)
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

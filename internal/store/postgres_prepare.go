package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// prepare makes a connection see the same as every other one of this process, whatever the settings of its role and its
// database are by now. Connections are made anew now and then, and some only read: those of a process that saw another schema
// would read an earlier copy of the record, in which a revocation is missing. A standby is such a copy, too, so connections to
// one are refused before.
//
// The search path of all connections is that of the first. Names in statements are looked for in pg_catalog first and then in
// the schema. With the search path of the role or of the database, a writer of the database could put functions and views of its
// own in place of those that the statements name.
//
// A commit waits until it is on the disk, because callers are told then that something is recorded.
func (p *postgres) prepare(ctx context.Context, c *pgx.Conn) error {
	if err := p.setPath(ctx, c); err != nil {
		return err
	}
	_, err := c.Exec(ctx, setSync)
	return err
}

func (p *postgres) setPath(ctx context.Context, c *pgx.Conn) error {
	path := p.path.Load()
	if path == nil {
		path = new(string)
		err := c.QueryRow(ctx, setOwnNames).Scan(path)
		if errors.Is(err, pgx.ErrNoRows) { // the schema does not exist; see version
			return nil
		}
		if err != nil || p.path.CompareAndSwap(nil, path) {
			return err
		}
		path = p.path.Load() // another connection was faster
	}
	_, err := c.Exec(ctx, setPath, *path)
	return err
}

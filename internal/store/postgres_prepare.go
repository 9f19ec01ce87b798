package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// onPrimary fails for a connection to a standby. The driver has such a function, too, but a writer of the database could make one that
// is called in place of the one that it asks, and that answers otherwise, or nothing, which ends the process.
func onPrimary(ctx context.Context, c *pgconn.PgConn) error {
	results, err := c.Exec(ctx, selectRecovery).ReadAll()
	if err != nil {
		return err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || string(results[0].Rows[0][0]) != "f" {
		return pgconn.ErrStandbyConnection
	}
	return nil
}

// prepare makes a connection see the same as every other one of this process, whatever the settings of its role and its
// database are by now. Connections are made anew now and then, and some only read: those of a process that saw another schema
// would read an earlier copy of the record, in which a revocation is missing. A standby is such a copy, too, so connections to
// one are refused before.
//
// The search path of all connections is that of the first. Names in statements are looked for in pg_catalog first and then in
// the schema. With the search path of the role or of the database, a writer of the database could put functions and views of its
// own in place of those that the statements name.
func (p *postgres) prepare(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, setTablesOnly, tablesOnly)
	if err == nil {
		err = p.setPath(ctx, c)
	}
	if err != nil { // the driver forgets the connection, and does not close it
		err = errors.Join(err, c.Close(ctx))
	}
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
	var own, now string
	err := c.QueryRow(ctx, setPath, *path).Scan(&own, &now)
	if err == nil {
		p.other.Store(own != *path)
	}
	return err
}

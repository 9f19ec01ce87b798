package store

import (
	"context"
	"database/sql/driver"
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

// prepareAgain makes a connection that was used before like a new one. Statements call functions of a writer of the database, such as in a
// trigger or in the condition of an index. One of these can change the search path of the connection for good, or put another statement in
// the place of one that the driver has prepared. Without this, that would last after the function is gone, and the tables of another schema
// would be read, and compared, in place of those of the record.
//
// It prepares no statement. A connection for which it fails is not used, and the pool makes another.
func (p *postgres) prepareAgain(ctx context.Context, c *pgx.Conn) error {
	b := &pgconn.Batch{}
	b.ExecParams(resetAll, nil, nil, nil, nil)
	b.ExecParams(resetRole, nil, nil, nil, nil)
	b.ExecParams(setTablesOnly, [][]byte{[]byte(tablesOnly)}, nil, nil, nil)
	if p.setPathAgain(ctx, c.PgConn(), b) != nil {
		return driver.ErrBadConn
	}
	return nil
}

// errOthers means that code of others has run in a connection.
var errOthers = errors.New("a function of others has changed the connection to the database; run `sandboxmcp audit verify` again, and look for what it calls")

// ownNames is prepareAgain before each statement of a transaction that only reads, such as that of `audit verify`: a function that one of its
// statements has called may be gone before the tables are compared.
func (p *postgres) ownNames(ctx context.Context, c *pgconn.PgConn) error {
	return p.setPathAgain(ctx, c, &pgconn.Batch{})
}

// setPathAgain carries out a batch of statements and sets the search path. It fails if a statement was prepared by another one.
func (p *postgres) setPathAgain(ctx context.Context, c *pgconn.PgConn, b *pgconn.Batch) error {
	path := p.path.Load()
	if path == nil { // the schema did not exist
		return errOthers
	}
	b.ExecParams(setPathAgain, [][]byte{[]byte(*path)}, nil, nil, nil)
	results, err := c.ExecBatch(ctx, b).ReadAll()
	if err != nil {
		return err
	}
	if last := results[len(results)-1]; len(last.Rows) != 1 || string(last.Rows[0][1]) != "f" {
		return errOthers
	}
	return nil
}

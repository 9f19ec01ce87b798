package store

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// postgresMost is the bound that the driver sets, in bytes: the server's own one.
const postgresMost = 1<<30 - 2

// Bound lets a connection of a store read no value and no row of more than most bytes, whatever a writer of the
// database has put there. A statement that comes to one fails; see [TooLarge]. The caller calls restore before it returns
// the connection.
func Bound(conn *sql.Conn, most int) (restore func(), err error) {
	var pg *numberedConn
	err = conn.Raw(func(inner any) error {
		pg, _ = inner.(*numberedConn)
		return nil
	})
	if err == nil && pg != nil {
		front := pg.Conn.Conn().PgConn().Frontend()
		front.SetMaxBodyLen(most)
		return func() { front.SetMaxBodyLen(postgresMost) }, nil
	}
	was := 0
	if err == nil {
		was, err = sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_LENGTH, most)
	}
	if err != nil {
		return nil, fmt.Errorf("bound what is read of the database: %w", err)
	}
	return func() { _, _ = sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_LENGTH, was) }, nil
}

// TooLarge reports whether a statement has failed because of [Bound].
func TooLarge(err error) bool {
	if _, ok := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); ok {
		return true
	}
	return sqliteCode(err) == sqlite3.SQLITE_TOOBIG
}

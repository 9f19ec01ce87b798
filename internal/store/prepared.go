package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
)

// maxPrepared bounds the statements that the writer keeps. Each package uses a handful. The
// bound protects memory if a package generates statement texts.
const maxPrepared = 64

// preparedConnector makes connections that keep their compiled statements. Without it the
// driver compiles a statement for each call, which for an insert into a table with indexes
// and triggers takes longer than running it.
type preparedConnector struct{ driver.Connector }

// Connect makes a connection.
func (c preparedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(fullConn)
	if !ok {
		return nil, fmt.Errorf("the SQLite driver's connection is %T, without a part that is needed", inner)
	}
	return &preparedConn{fullConn: full, kept: map[string]*keptStmt{}}, nil
}

// fullConn is the part of the driver's connection that preparedConn uses.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// preparedConn is a connection that keeps its statements. Like every driver.Conn it is used
// by one goroutine at a time.
type preparedConn struct {
	fullConn

	kept map[string]*keptStmt
}

type keptStmt struct {
	fullStmt

	reading bool // the statement's rows are open, so it cannot be run again yet
}

// ExecContext runs a statement.
func (c *preparedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.fullConn.ExecContext(ctx, query, args)
	}
	return s.ExecContext(ctx, args)
}

// QueryContext runs a query.
func (c *preparedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.fullConn.QueryContext(ctx, query, args)
	}
	rows, err := s.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	s.reading = true
	return &keptRows{Rows: rows, stmt: s}, nil
}

// Close closes the statements and the connection.
func (c *preparedConn) Close() error {
	for _, s := range c.kept {
		if err := s.Close(); err != nil {
			return err
		}
	}
	c.kept = nil
	return c.fullConn.Close()
}

// stmt returns the compiled statement of a query, or nil if the driver must run the query's
// text.
func (c *preparedConn) stmt(ctx context.Context, query string) (*keptStmt, error) {
	if s, ok := c.kept[query]; ok {
		if s.reading {
			return nil, nil
		}
		return s, nil
	}
	if len(c.kept) >= maxPrepared || !keepable(query) {
		return nil, nil
	}
	inner, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(fullStmt)
	if !ok {
		return nil, inner.Close()
	}
	s := &keptStmt{fullStmt: full}
	c.kept[query] = s
	return s, nil
}

// keepable reports whether a query's statement may be kept. A PRAGMA may not be kept,
// because some take effect when they are compiled.
func keepable(query string) bool {
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	switch strings.ToUpper(verb) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "SAVEPOINT", "RELEASE", "ROLLBACK":
		return true
	}
	return false
}

// keptRows are the rows of a kept statement. Their Close makes the statement usable again.
type keptRows struct {
	driver.Rows

	stmt *keptStmt
}

// Close closes the rows.
func (r *keptRows) Close() error {
	r.stmt.reading = false
	return r.Rows.Close()
}

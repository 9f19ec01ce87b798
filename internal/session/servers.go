package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
)

// ElsewhereError means that another server has the session.
type ElsewhereError struct {
	Owner   string // of the session
	Address string // of that server
}

// Error names the server.
func (e *ElsewhereError) Error() string { return "server " + e.Owner + " at " + e.Address + " has it" }

// Elsewhere returns the address of the server that has the session of an error; empty: the error is another one.
func Elsewhere(err error) string {
	if e, ok := errors.AsType[*ElsewhereError](err); ok {
		return e.Address
	}
	return ""
}

// Join lists this process among the servers that reach each other. It is an owner from then on.
func (t *Table) Join(ctx context.Context) error {
	if t.cfg.Address == "" {
		return nil
	}
	name, err := t.owner.enter(ctx)
	if err != nil {
		return err
	}
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, insertServer, name, t.cfg.Address)
		return err
	})
}

// unlist removes a server from those that reach each other.
func (t *Table) unlist(ctx context.Context, who string) error {
	if t.cfg.Address == "" {
		return nil
	}
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, deleteServer, who)
		return err
	})
}

// Servers returns the addresses of the other servers that are alive. It forgets those that are not.
func (t *Table) Servers(ctx context.Context) ([]string, error) {
	if t.cfg.Address == "" {
		return nil, nil
	}
	rows, err := t.cfg.Store.DB().QueryContext(ctx, selectServers, t.owner.id())
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	all := map[string]string{}
	for rows.Next() {
		var who, address string
		if err = rows.Scan(&who, &address); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		all[who] = address
	}
	if err = errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	var alive []string
	for who, address := range all {
		if t.owner.lives(ctx, who) {
			alive = append(alive, address)
		} else if err = t.unlist(ctx, who); err != nil {
			return nil, err
		}
	}
	slices.Sort(alive)
	return slices.Compact(alive), nil
}

func elsewhereError(id sandboxmcp.SessionID, who, address string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "session %s is on another server", sandboxmcp.Quote(string(id))).
		WithHint("ask again; if that server has ended, the answer says so").WithCause(&ElsewhereError{Owner: who, Address: address})
}

// record adds the row of a new session, unless another server has made one of that id meanwhile.
func (t *Table) record(ctx context.Context, info sandboxmcp.Session) error {
	var dead []string
	for {
		other, err := t.insert(ctx, info, dead)
		if err != nil || other == "" {
			return err
		}
		if t.owner.lives(ctx, other) {
			return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "another server has made session %s at the same time", sandboxmcp.Quote(string(info.ID))).
				WithHint("ask again")
		}
		dead = append(dead, other)
	}
}

// rival returns a server outside of dead that has a live session of the id; empty: there is none.
func (t *Table) rival(ctx context.Context, tx *sql.Tx, info sandboxmcp.Session, dead []string) (other string, err error) {
	if t.cfg.Address == "" {
		return "", nil
	}
	rows, err := tx.QueryContext(ctx, selectRivals, info.Namespace, info.ID, info.Owner)
	if err != nil {
		return "", fmt.Errorf("look for the session: %w", err)
	}
	for rows.Next() {
		var who string
		if err = rows.Scan(&who); err != nil {
			return "", errors.Join(err, rows.Close())
		}
		if !slices.Contains(dead, who) {
			other = who
		}
	}
	return other, errors.Join(rows.Err(), rows.Close())
}

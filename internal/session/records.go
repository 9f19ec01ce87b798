package session

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// keepExpired is the time for which an expired id answers session_expired.
const keepExpired = 24 * time.Hour

const stamp = time.RFC3339Nano

// insert adds the row of a new session. The caller has looked at older rows of the id. If a server outside of
// dead has a live session of the id, insert adds no row and returns that server.
func (t *Table) insert(ctx context.Context, info sandboxmcp.Session, dead []string) (other string, err error) {
	text, err := json.Marshal(info)
	if err != nil {
		return "", fmt.Errorf("encode session: %w", err)
	}
	return other, t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if other, err = t.rival(ctx, tx, info, dead); err != nil || other != "" {
			return err
		}
		if _, err := tx.ExecContext(ctx, deleteExpiredID, info.Namespace, info.ID); err != nil {
			return fmt.Errorf("free the session id: %w", err)
		}
		_, err := tx.ExecContext(ctx, insertLive,
			info.Namespace, info.ID, info.Owner, info.CreatedAt.UTC().Format(stamp), string(text))
		if err != nil {
			return fmt.Errorf("add the session: %w", err)
		}
		return nil
	})
}

// absent reads the rows of an id that has no live session here. gone says why the id may
// not be used again: it expired less than a day ago, or its owner died. If gone is nil,
// the id is free. err is the database's.
func (t *Table) absent(ctx context.Context, k key) (gone, err error) {
	query := selectID
	if t.cfg.Address != "" {
		query = selectIDAt
	}
	rows, err := t.cfg.Store.DB().QueryContext(ctx, query, k.ns, k.id)
	if err != nil {
		return nil, t.cfg.Store.ReadError(fmt.Errorf("look for the session: %w", err))
	}
	defer rows.Close()
	for rows.Next() {
		var who, state, changed, address string
		if err := rows.Scan(&who, &state, &changed, &address); err != nil {
			return nil, fmt.Errorf("look for the session: %w", err)
		}
		at, _ := time.Parse(stamp, changed)
		switch {
		case state == "expired" && t.cfg.Now().Sub(at) < keepExpired:
			gone = expiredError(k.id, "its time was up, or its sandbox ended")
		case state == "live" && who == t.owner.id(): // its row could not be changed at its end
			gone = expiredError(k.id, "it was closed")
		case state == "live" && t.owner.lives(ctx, who):
			if address != "" { // servers without one have ids of their own
				return elsewhereError(k.id, who, address), t.cfg.Store.ReadError(rows.Err())
			}
		case state == "live" && t.cfg.Now().Sub(at) < keepExpired:
			gone = expiredError(k.id, "the server that had it has ended")
		}
	}
	return gone, t.cfg.Store.ReadError(rows.Err())
}

// elsewhere returns the time at which the oldest live session of an id was created in other live processes.
// The time is zero if no other process has one.
func (t *Table) elsewhere(ctx context.Context, k key) (since time.Time, err error) {
	rows, err := t.cfg.Store.DB().QueryContext(ctx, selectID, k.ns, k.id)
	if err != nil {
		return since, t.cfg.Store.ReadError(fmt.Errorf("look for the session: %w", err))
	}
	defer rows.Close()
	for rows.Next() {
		var who, state, changed, address string
		if err := rows.Scan(&who, &state, &changed, &address); err != nil {
			return since, fmt.Errorf("look for the session: %w", err)
		}
		if state != "live" || who == t.owner.id() || !t.owner.lives(ctx, who) {
			continue
		}
		at, err := time.Parse(stamp, changed)
		if err != nil {
			return since, fmt.Errorf("look for the session: %w", err)
		}
		if since.IsZero() || at.Before(since) {
			since = at
		}
	}
	return since, rows.Err()
}

// markExpired marks the row of a session as expired. It leaves a later session of the id
// alone.
func (t *Table) markExpired(ctx context.Context, s sandboxmcp.Session, at time.Time) error {
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, expireOne,
			at.UTC().Format(stamp), s.Namespace, s.ID, s.Owner, s.CreatedAt.UTC().Format(stamp))
		return err
	})
}

// forget deletes the row of a session of this process, which frees its id.
func (t *Table) forget(ctx context.Context, s sandboxmcp.Session) error {
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, deleteOne,
			s.Namespace, s.ID, s.Owner, s.CreatedAt.UTC().Format(stamp))
		return err
	})
}

// forgetExpired deletes the expired rows of an id, of any process.
func (t *Table) forgetExpired(ctx context.Context, k key) error {
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, deleteExpiredID, k.ns, k.id)
		return err
	})
}

// leave marks the sessions of an owner as expired.
func (t *Table) leave(ctx context.Context, who string) error {
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, expireOwner, t.cfg.Now().UTC().Format(stamp), who)
		return err
	})
}

// Sweep marks the sessions of dead owners as expired and returns their number. It deletes
// rows that expired more than a day ago.
func (t *Table) Sweep(ctx context.Context) (orphans int64, err error) {
	rows, err := t.cfg.Store.DB().QueryContext(ctx, selectOwners)
	if err != nil {
		return 0, fmt.Errorf("list owners of sessions: %w", err)
	}
	var dead []string
	for rows.Next() {
		var who string
		if err = rows.Scan(&who); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
		if who != t.owner.id() && !t.owner.lives(ctx, who) {
			dead = append(dead, who)
		}
	}
	if err = errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, fmt.Errorf("list owners of sessions: %w", err)
	}
	now := t.cfg.Now().UTC()
	err = t.cfg.Store.Update(ctx, t.bury(dead, now, &orphans))
	for _, who := range dead {
		t.owner.bury(ctx, who)
	}
	return orphans, err
}

// bury returns the step of Sweep.
func (t *Table) bury(dead []string, now time.Time, orphans *int64) store.Op {
	return func(ctx context.Context, tx *sql.Tx) error {
		*orphans = 0
		for _, who := range dead {
			res, err := tx.ExecContext(ctx, expireOwner, now.Format(stamp), who)
			if err != nil {
				return err
			}
			n, _ := res.RowsAffected()
			*orphans += n
		}
		_, err := tx.ExecContext(ctx, deleteExpired, now.Add(-keepExpired).Format(stamp))
		return err
	}
}

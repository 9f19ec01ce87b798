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

// keepExpired is how long an id says that it has expired.
const keepExpired = 24 * time.Hour

const stamp = time.RFC3339Nano

// insert enters a session. What stood there of the id was looked at before.
func (t *Table) insert(ctx context.Context, info sandboxmcp.Session) error {
	text, err := json.Marshal(info)
	if err != nil {
		return fmt.Errorf("encode session: %w", err)
	}
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, deleteExpiredID, info.Namespace, info.ID); err != nil {
			return fmt.Errorf("free session id: %w", err)
		}
		_, err := tx.ExecContext(ctx, insertLive,
			info.Namespace, info.ID, info.Owner, info.CreatedAt.UTC().Format(stamp), string(text))
		if err != nil {
			return fmt.Errorf("enter session: %w", err)
		}
		return nil
	})
}

// absent reads why an id that does not live here may not be made anew: less than a day
// ago it expired, or its owner died. If gone is nil, the id is free. err is the
// database's.
func (t *Table) absent(ctx context.Context, k key) (gone, err error) {
	rows, err := t.cfg.Store.DB().QueryContext(ctx, selectID, k.ns, k.id)
	if err != nil {
		return nil, fmt.Errorf("look for session: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var who, state, changed string
		if err := rows.Scan(&who, &state, &changed); err != nil {
			return nil, fmt.Errorf("look for session: %w", err)
		}
		at, _ := time.Parse(stamp, changed)
		switch {
		case state == "expired" && t.cfg.Now().Sub(at) < keepExpired:
			gone = expiredError(k.id, "its time was up, or its sandbox ended")
		case state == "live" && who == t.owner.id(): // its row could not be changed when it ended
			gone = expiredError(k.id, "it was closed")
		case state == "live" && !t.owner.lives(who) && t.cfg.Now().Sub(at) < keepExpired:
			gone = expiredError(k.id, "the server that had it has ended")
		}
	}
	return gone, rows.Err()
}

// markExpired notes that the time of a session was up. One that was made under
// its id since is another.
func (t *Table) markExpired(ctx context.Context, s sandboxmcp.Session, at time.Time) error {
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, expireOne,
			at.UTC().Format(stamp), s.Namespace, s.ID, s.Owner, s.CreatedAt.UTC().Format(stamp))
		return err
	})
}

// forget frees the id of a session of ours that was closed.
func (t *Table) forget(ctx context.Context, s sandboxmcp.Session) error {
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, deleteOne,
			s.Namespace, s.ID, s.Owner, s.CreatedAt.UTC().Format(stamp))
		return err
	})
}

// forgetExpired frees an id that had expired, whoever had it.
func (t *Table) forgetExpired(ctx context.Context, k key) error {
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, deleteExpiredID, k.ns, k.id)
		return err
	})
}

// leave notes that everything that an owner had is gone.
func (t *Table) leave(ctx context.Context, who string) error {
	return t.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, expireOwner, t.cfg.Now().UTC().Format(stamp), who)
		return err
	})
}

// Sweep removes what nobody has to be told any more, and notes which sessions
// dead owners had. It returns how many of these there were.
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
		if who != t.owner.id() && !t.owner.lives(who) {
			dead = append(dead, who)
		}
	}
	if err = errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, fmt.Errorf("list owners of sessions: %w", err)
	}
	now := t.cfg.Now().UTC()
	err = t.cfg.Store.Update(ctx, t.bury(dead, now, &orphans))
	for _, who := range dead {
		t.owner.bury(who)
	}
	return orphans, err
}

// bury notes what dead owners had, and forgets what nobody has to be told.
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

package store

import (
	"context"
	"fmt"
	"time"
)

// clockSlack is how far the clock of a machine may be from that of the database.
const clockSlack = time.Minute

// CheckClock fails if the database is shared by several machines, and the clock of this one is
// wrong by that of the database. Each server decides by its own clock what has expired: a wrong one
// would delete what all of them still need, or let it live too long.
func (s *Store) CheckClock(ctx context.Context) error {
	if s.pg == nil {
		return nil
	}
	if err := s.checkClock(ctx); err != nil {
		return s.explain("used", err)
	}
	return nil
}

func (s *Store) checkClock(ctx context.Context) error {
	var there time.Time
	before := s.now()
	if err := s.reader.QueryRowContext(ctx, selectClock).Scan(&there); err != nil {
		return err
	}
	after := s.now()
	if there.Before(before.Add(-clockSlack)) || there.After(after.Add(clockSlack)) {
		return &databaseError{
			reason: fmt.Sprintf("the clock of this machine is %s, and that of the database %s", after.UTC().Format(time.RFC3339), there.UTC().Format(time.RFC3339)),
			hint:   "set the clocks by NTP",
		}
	}
	return nil
}

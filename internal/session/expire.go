package session

import (
	"context"
	"time"
)

// touchLocked restarts the lifetime of a session. It wakes the watch only if that would look too late: a session that is in use
// all the time would wake it with each run.
func (t *Table) touchLocked(s *Session) {
	now := t.cfg.Now().UTC().Round(0)
	s.info.LastActivity, s.info.ExpiresAt = now, now.Add(s.ttl)
	if s.busy || !s.info.ExpiresAt.Before(t.next) {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// overdueLocked reports whether a session has been unused for longer than its lifetime.
func (t *Table) overdueLocked(s *Session) bool {
	return s.room != nil && !s.busy && t.cfg.Now().After(s.info.ExpiresAt)
}

// expireLocked removes a session from the table. A goroutine closes it.
func (t *Table) expireLocked(s *Session) {
	t.leaveLocked(s)
	info := s.info
	t.work.Go(func() {
		_ = s.room.Close(context.WithoutCancel(t.life))
		_ = t.markExpired(t.life, info, t.cfg.Now())
		t.ended(s.key)
		if t.cfg.Expired != nil {
			t.cfg.Expired(info)
		}
	})
}

// watch expires sessions at the end of their lifetime.
func (t *Table) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(t.sweep()) //nolint:contextcheck // a session ends whatever becomes of ctx
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer.C:
		}
	}
}

// sweep expires overdue sessions and returns the time until the next look.
func (t *Table) sweep() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := time.Hour
	for _, s := range t.live {
		switch {
		case t.overdueLocked(s):
			t.expireLocked(s)
		case s.room != nil && !s.busy:
			next = min(next, s.info.ExpiresAt.Sub(t.cfg.Now())+time.Millisecond)
		}
	}
	next = max(next, time.Millisecond)
	t.next = t.cfg.Now().Add(next)
	return next
}

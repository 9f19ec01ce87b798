package session

import (
	"context"
	"testing"
	"time"
)

// TestASessionInUseDoesNotWakeTheWatch: the watch is woken only if a session would end before it looks.
func TestASessionInUseDoesNotWakeTheWatch(t *testing.T) {
	now := time.Now()
	s := &Session{ttl: time.Minute, busy: true}
	table := &Table{cfg: Config{Now: func() time.Time { return now }}, wake: make(chan struct{}, 1), live: map[key]*Session{{}: s}}
	s.t = table
	woken := func() bool {
		select {
		case <-table.wake:
			return true
		default:
			return false
		}
	}
	table.sweep() // the session is in use: nothing ends for an hour
	s.Release()
	if !woken() {
		t.Error("the watch sleeps on although a session ends before it looks")
	}
	s.room = emptyRoom{}
	if next := table.sweep(); next != time.Minute+time.Millisecond {
		t.Errorf("got %s until the next look, want a minute and 1 ms", next)
	}
	for range 3 {
		now = now.Add(time.Second)
		s.busy = true
		table.touchLocked(s)
		s.Release()
		if woken() {
			t.Error("a run woke the watch, which looks before the session ends")
		}
	}
}

type emptyRoom struct{}

func (emptyRoom) Close(context.Context) error { return nil }

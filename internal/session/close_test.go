package session_test

import (
	"context"
	"errors"
	"testing"
	"time"
)

// together is a room that is closed only once others are being closed, too.
type together struct {
	come chan struct{}
	all  <-chan struct{}
}

func (r *together) Close(context.Context) error {
	r.come <- struct{}{}
	select {
	case <-r.all:
		return nil
	case <-time.NewTimer(time.Minute).C:
		return errors.New("it is closed alone")
	}
}

// TestSessionsAreClosedAtOnce: sandboxes that do not end delay the end of the server no longer than one of them.
func TestSessionsAreClosedAtOnce(t *testing.T) {
	k := newKit(t, t.TempDir(), 10)
	ids, come, all := []string{"a", "b", "c"}, make(chan struct{}), make(chan struct{})
	for _, id := range ids {
		s, fresh, err := k.Claim(t.Context(), "", info(id), time.Hour, false)
		if err != nil || !fresh {
			t.Fatalf("Claim %s: fresh %v, %v", id, fresh, err)
		}
		if err := s.Furnish(t.Context(), &together{come, all}, info(id)); err != nil {
			t.Fatal(err)
		}
		s.Release()
	}
	go func() {
		for range ids {
			<-come
		}
		close(all)
	}()
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

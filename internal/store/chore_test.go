package store_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

func TestAChoreIsDoneByOneProcessAtATimeAndNotAgainWithinAWhile(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "state"), time.Unix(1_900_000_000, 0)
	var both [2]store.Chore
	for i := range both {
		s, err := store.Open(t.Context(), store.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		both[i] = store.Chore{Store: s, Lease: "chore.lock", Mark: "done", Now: func() time.Time { return now }}
	}
	a, b := both[0], both[1]
	times := 0
	do := func(c store.Chore, within time.Duration, done bool) {
		t.Helper()
		err := c.Do(t.Context(), within, func() bool { times++; return done })
		if err != nil {
			t.Fatal(err)
		}
	}
	if do(a, time.Hour, false); b.Done(time.Hour) || times != 1 {
		t.Errorf("after one that failed: got done %v and %d calls, want false and 1", b.Done(time.Hour), times)
	}
	if do(a, time.Hour, true); !b.Done(time.Hour) || times != 2 {
		t.Errorf("after one that succeeded: got done %v and %d calls, want true and 2", b.Done(time.Hour), times)
	}
	if do(b, time.Hour, true); times != 2 {
		t.Errorf("within the while: got %d calls, want 2", times)
	}
	now = now.Add(time.Hour)
	if do(b, time.Hour, true); times != 3 {
		t.Errorf("after the while: got %d calls, want 3", times)
	}
	err := a.Do(t.Context(), 0, func() bool {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Do(ended, 0, func() bool { times++; return true }); err == nil {
			t.Error("beside another process: got no error, want that of the context")
		}
		return true
	})
	if err != nil || times != 3 {
		t.Errorf("beside another process: got %v and %d calls, want 3", err, times)
	}
}

func TestAChoreOfADatabaseInMemoryLeavesNoMark(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "state"), SQLitePath: store.MemoryPath})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := store.Chore{Store: s, Lease: "chore.lock", Mark: "done"}
	called := false
	if err := c.Do(t.Context(), 0, func() bool { called = true; return true }); err != nil || !called || c.Shared() || c.Done(time.Hour) {
		t.Errorf("got %v, called %v, shared %v, done %v; want a call and no more", err, called, c.Shared(), c.Done(time.Hour))
	}
}

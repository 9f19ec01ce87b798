package api_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// occurrence is an event with a number.
func occurrence(n int) sandboxmcp.Event {
	return sandboxmcp.Event{ID: "m-" + strconv.Itoa(n), Type: sandboxmcp.EventExecutionStarted, Namespace: "team", Data: map[string]any{}}
}

// TestFollowersGetEveryEventInOrder: each follower gets all that happens, and the
// end of one ends no other.
func TestFollowersGetEveryEventInOrder(t *testing.T) {
	const few, all, each = 4, 12, 20 // few of the followers leave after five events
	c, s, server := pair(t)
	var wg sync.WaitGroup
	got := make([][]string, all)
	for i := range all {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := c.Follow(ctx, owner(), false)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for e := range events {
				got[i] = append(got[i], e.ID)
				if i < few && len(got[i]) == 5 {
					cancel()
					return
				}
			}
		})
	}
	var want []string
	for n := range each {
		want = append(want, occurrence(n).ID)
		for _, f := range s.following() {
			f.tell(occurrence(n))
		}
		if n == 4 {
			testkit.Until(t, "those that leave are gone", func() bool { return len(s.following()) == all-few })
		}
	}
	testkit.Until(t, "every event is read", func() bool {
		for _, f := range s.following() {
			if len(f.events) > 0 {
				return false
			}
		}
		return true
	})
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for i, ids := range got {
		expected := want
		switch {
		case i < few:
			expected = want[:5]
		case len(ids) == each-1: // the last one may be on its way when the server ends
			expected = want[:each-1]
		}
		if d := cmp.Diff(expected, ids); d != "" {
			t.Errorf("follower %d: got other events (-want +got):\n%s", i, d)
		}
	}
}

// TestDrainEndsFollowers: a drain does not wait for followers.
func TestDrainEndsFollowers(t *testing.T) {
	c, s, server := pair(t)
	events, err := c.Follow(t.Context(), owner(), true)
	if err != nil {
		t.Fatal(err)
	}
	<-events
	if err := server.Drain(t.Context()); err != nil {
		t.Errorf("drain: got %v, want success", err)
	}
	if e, open := <-events; open {
		t.Errorf("got the event %+v, want the end of the channel", e)
	}
	if got := len(s.following()); got != 0 {
		t.Errorf("got %d followers in the service, want none", got)
	}
}

// TestFollowEndsWithItsContext: the channel is closed although no event is read.
func TestFollowEndsWithItsContext(t *testing.T) {
	c, s, _ := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := c.Follow(ctx, owner(), true)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range events { // at most the recent one
	}
	testkit.Until(t, "the service has no follower", func() bool { return len(s.following()) == 0 })
}

// TestFollowersAreBounded: the 65th follower is refused, and has room after the
// others have gone.
func TestFollowersAreBounded(t *testing.T) {
	c, s, _ := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 64 {
		if _, err := c.Follow(ctx, owner(), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Follow(t.Context(), owner(), false); sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
		t.Errorf("the 65th: got %v, want %s", err, sandboxmcp.CodeQueueFull)
	}
	if _, err := c.Stats(t.Context()); err != nil {
		t.Errorf("stats beside 64 followers: got %v, want success", err)
	}
	cancel()
	testkit.Until(t, "all have gone", func() bool { return len(s.following()) == 0 })
	testkit.Until(t, "there is room again", func() bool {
		again, stop := context.WithCancel(t.Context())
		defer stop()
		_, err := c.Follow(again, owner(), false)
		return err == nil
	})
}

// TestSlowCallersHoldNothingUp: callers that send half a request, or follow and
// read nothing, delay neither other callers nor the end of the server.
func TestSlowCallersHoldNothingUp(t *testing.T) {
	dir := t.TempDir()
	server, s := listen(t, dir)
	id := server.Hello().ID
	for range 20 {
		speak(t, dir, id, "GET /v1/he")
		speak(t, dir, id, "POST /v1/limits HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		speak(t, dir, id, "POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		speak(t, dir, id, "PUT /v1/sessions/a/file?path=x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")
		speak(t, dir, id, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	testkit.Until(t, "20 follow", func() bool { return len(s.following()) == 20 })
	// 64 events of 64 KiB wait: more than a socket that nobody reads takes, so its
	// writer blocks.
	flood := sandboxmcp.Event{Message: strings.Repeat("x", 64<<10)}
	for _, f := range s.following() {
		for f.tell(flood) {
			continue
		}
	}
	c := peers(t, dir, 1)[0]
	if _, err := c.Stats(t.Context()); err != nil {
		t.Errorf("stats: got %v, want success", err)
	}
	if _, err := c.SetLimits(t.Context(), owner(), sandboxmcp.LimitsChange{}); err != nil {
		t.Errorf("limits: got %v, want success", err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Close() }()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("close: got %v, want success", err)
		}
	case <-limit.C:
		t.Fatal("close: got no end after 20 s, want the end of the server")
	}
}

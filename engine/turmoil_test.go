package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestSessionTurmoil: many callers make, use, close and make again a session of one name at
// the same time, and it expires meanwhile. Each of them gets what it requested, or an error
// that says what became of the session. In the end the name is free.
func TestSessionTurmoil(t *testing.T) {
	e := openReal(t, func(c *engine.Config) { c.MaxSessions = 3 })
	needs(t, e, sandboxmcp.Shell)
	const name, sides, rounds = sandboxmcp.SessionID("name"), 6, 60
	spec := sandboxmcp.SessionSpec{ID: name, Language: sandboxmcp.Shell, TTL: 30 * time.Millisecond}
	run := func(ctx context.Context, n int) error {
		made := spec
		res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{SessionID: name, Session: &made, Language: sandboxmcp.Shell, Code: fmt.Sprintf("echo $mine; mine=%d; cat left 2>/dev/null; sleep .0%d", n, n%4)})
		switch {
		case err != nil:
			return err
		case res.Status == sandboxmcp.StatusCancelled || res.Success:
			return nil
		}
		return fmt.Errorf("got %s %q %q, want success or cancelled", res.Status, res.Stdout, res.Stderr)
	}
	deeds := []func(ctx context.Context, n int) error{
		run, run, run,
		func(ctx context.Context, _ int) error {
			_, err := e.CreateSession(ctx, sandboxmcp.Caller{}, spec)
			return err
		},
		func(ctx context.Context, n int) error {
			_, _, err := e.Upload(ctx, sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: name, Name: "left", Content: []byte(strings.Repeat("x", n)), Overwrite: true})
			return err
		},
		func(ctx context.Context, _ int) error {
			_, _, err := e.ReadFile(ctx, sandboxmcp.Caller{}, name, "left", 1000)
			return err
		},
		func(ctx context.Context, _ int) error {
			_, err := e.SessionFiles(ctx, sandboxmcp.Caller{}, name)
			return err
		},
		func(ctx context.Context, _ int) error {
			_, err := e.Inspect(ctx, sandboxmcp.Caller{}, name)
			return err
		},
		func(ctx context.Context, _ int) error {
			return e.RemoveFile(ctx, sandboxmcp.Caller{}, name, "left")
		},
		func(ctx context.Context, _ int) error {
			_, err := e.Bridge(ctx, sandboxmcp.Caller{}, sandboxmcp.Bridge{To: name, Data: map[string]json.RawMessage{"k": json.RawMessage("1")}})
			return err
		},
		func(ctx context.Context, _ int) error {
			return e.CloseSession(ctx, sandboxmcp.Caller{}, name)
		},
		func(ctx context.Context, _ int) error {
			return e.TerminateSession(ctx, sandboxmcp.Caller{}, name)
		},
		func(context.Context, int) error { time.Sleep(40 * time.Millisecond); return nil }, // longer than the session's TTL
	}
	fine := []sandboxmcp.Code{"", sandboxmcp.CodeSessionBusy, sandboxmcp.CodeSessionNotFound, sandboxmcp.CodeSessionExpired}
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for side := range sides {
		wg.Go(func() {
			for n := range rounds {
				which := (side*7 + n*5) % len(deeds)
				err := deeds[which](t.Context(), n)
				code := sandboxmcp.CodeOf(err)
				if err != nil && code == "" {
					code = "none"
				}
				mu.Lock()
				seen[fmt.Sprintf("%d %s", which, code)]++
				mu.Unlock()
				ended := which < 3 && code == sandboxmcp.CodeCancelled                   // before it began
				there := which == 3 && code == sandboxmcp.CodeInvalidArgument            // a session of the name
				missing := (which == 5 || which == 8) && code == sandboxmcp.CodeNotFound // the file
				if !slices.Contains(fine, code) && !ended && !there && !missing {
					t.Errorf("deed %d: got %v, want success or what became of the session", which, err)
				}
			}
		})
	}
	wg.Wait()
	t.Log(seen)
	eventually(t, "nothing of the name is left", func() bool { // one that expired is closed by itself, and says so until it is ended
		return sandboxmcp.CodeOf(e.TerminateSession(t.Context(), sandboxmcp.Caller{}, name)) == sandboxmcp.CodeSessionNotFound
	})
	if s, err := e.Sessions(t.Context(), everyone()); err != nil || len(s) != 0 {
		t.Errorf("sessions left: got %+v, %v; want none", s, err)
	}
	if err := run(t.Context(), 1); err != nil {
		t.Errorf("the name, used again: got %v, want nil", err)
	}
}

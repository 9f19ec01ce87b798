package engine

import (
	"context"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
)

// TestWorkOfTheServerTakesTurns: while as much is done as may be at once, a further call
// waits until it is cancelled, and too many that wait are refused.
func TestWorkOfTheServerTakesTurns(t *testing.T) {
	e := &Engine{parses: newTurns(1), fetches: newTurns(1), cfg: Config{MaxCodeBytes: 100}}
	e.inForce.Store(&e.cfg)
	e.openWeb()
	who := sandboxmcp.Caller{Namespace: "default"}
	check := func(l sandboxmcp.Language) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := e.check(ctx, who, sandboxmcp.CodeCheck{Code: "a", Language: l})
			return err
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		q    *queue.Queue
		call func(context.Context) error
		free sandboxmcp.Code // with a place
	}{
		"node":  {e.parses, check(sandboxmcp.Node), ""},
		"shell": {e.parses, check(sandboxmcp.Shell), ""},
		"fetch": {e.fetches, func(ctx context.Context) error {
			_, err := e.fetch(ctx, who, sandboxmcp.PageAsk{URL: "http://127.0.0.1:1/"})
			return err
		}, sandboxmcp.CodeBlockedAddress},
		"search": {e.fetches, func(ctx context.Context) error {
			_, err := e.search(ctx, who, sandboxmcp.SearchAsk{})
			return err
		}, sandboxmcp.CodeInvalidArgument},
	} {
		if got := codeOf(c.call(t.Context())); got != c.free {
			t.Errorf("%s: got %q, want %q", name, got, c.free)
		}
		done, err := inTurn(t.Context(), c.q, "other")
		if err != nil {
			t.Fatal(err)
		}
		if got := codeOf(c.call(over)); got != sandboxmcp.CodeCancelled {
			t.Errorf("%s with no place left: got %q, want cancelled", name, got)
		}
		var waiting []*queue.Ticket
		for range maxInTurn {
			w, err := c.q.Enter(who.Namespace, 0)
			if err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, w)
		}
		if got := codeOf(c.call(t.Context())); got != sandboxmcp.CodeQueueFull {
			t.Errorf("%s behind %d others: got %q, want queue_full", name, maxInTurn, got)
		}
		for _, w := range waiting {
			w.Leave()
		}
		done()
	}
}

func codeOf(err error) sandboxmcp.Code {
	if err == nil {
		return ""
	}
	return sandboxmcp.CodeOf(err)
}

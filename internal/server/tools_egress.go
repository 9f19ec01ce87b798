package server

import (
	"context"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// requestEgress is the row of request_egress.
func requestEgress() tool {
	return tool{
		name:  "request_egress",
		title: "Ask for a domain",
		description: "Asks a person to open a domain to programs and waits for the answer. " +
			"If status is pending, tell the user how_to_approve and call again. denied is final.",
		hints: hints{openWorld: true},
		in: input(
			need("domain", about("string", "api.example.com or *.example.com; not a URL or address")),
			opt("namespace", fallback(typed("string"), `"default"`)),
			opt("reason", about("string", "Shown to the person as your words")),
			opt("port", atMost(atLeast(about("integer", "Default: 80 and 443"), 1), 65535)),
			opt("wait_seconds", fallback(atMost(atLeast(about("number", "0 to 45"), 0), maxWaitSeconds), strconv.Itoa(maxWaitSeconds))),
		),
		out: output(
			need("domain", typed("string")),
			need("approved", typed("boolean")),
			need("status", about("string", "approved, denied or pending")),
			opt("approval_id", typed("string")),
			need("expires_at", typed("string", "null")),
			need("how_to_approve", typed("string")),
		),
		asks: true,
		run:  (*Server).requestEgress,
	}
}

func (s *Server) requestEgress(ctx context.Context, c *call) (answer, error) {
	ask := sandboxmcp.EgressAsk{
		Domain: c.args.text("domain"), Port: c.args.whole("port"), Reason: c.args.text("reason"),
	}
	return s.askPerson(ctx, c, question{
		ask: func(ctx context.Context, wait time.Duration) (sandboxmcp.AccessAnswer, error) {
			ask := ask // a copy, because several goroutines may ask
			ask.Wait = wait
			return s.engine.RequestEgress(ctx, c.who, ask)
		},
		find: func(ctx context.Context, id string) (sandboxmcp.Approval, string, error) {
			a, err := s.engine.FindApproval(ctx, c.who, id)
			return a, egressText(a), err
		},
		decide: s.engine.DecideEgress, denied: sandboxmcp.CodeEgressDenied,
	})
}

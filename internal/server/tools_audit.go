package server

import (
	"context"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// auditExecution is the row of audit_execution.
func auditExecution() tool {
	return tool{
		name:        "audit_execution",
		large:       true,
		title:       "Read the audit record",
		description: "Returns the newest entries of the record of what was done in your namespace, newest first, with sizes and hashes, never code or output. head is the newest signed checkpoint.",
		hints:       hints{readOnly: true, idempotent: true},
		in: input(
			opt("namespace", fallback(typed("string"), `"default"`)),
			opt("limit", atMost(fallback(limitSchema("1 to 1000"), "50"), 1000)),
			opt("action", about("string", "Such as execute")),
			opt("since", about("string", "RFC 3339")),
		),
		out: output(
			need("entries", typed("array")),
			need("total", about("integer", "Without the limit")),
			need("head", about("object", "size, root, signed_at")),
		),
		run: (*Server).auditExecution,
	}
}

func (s *Server) auditExecution(ctx context.Context, c *call) (answer, error) {
	q := sandboxmcp.AuditQuery{Action: c.args.text("action"), Limit: c.args.whole("limit")}
	if text := c.args.text("since"); text != "" {
		var err error
		if q.Since, err = time.Parse(time.RFC3339Nano, strings.ToUpper(text)); err != nil {
			return answer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "since is %s, which is no time", sandboxmcp.Quote(text)).
				WithHint("give a time with its zone, such as 2026-01-31T09:00:00Z")
		}
	}
	page, err := s.engine.Audit(ctx, c.who, q)
	if err != nil {
		return answer{}, err
	}
	page.Entries = some(page.Entries)
	return answer{body: page}, nil
}

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
		description: "Returns the newest entries of your namespace's audit record, newest first, with sizes and hashes but no code or output. head is the newest signed checkpoint.",
		hints:       hints{readOnly: true, idempotent: true},
		in: input(
			opt("namespace", fallback(typed("string"), `"default"`)),
			opt("limit", atMost(fallback(limitSchema("1 to 1000"), "50"), 1000)),
			opt("action", about("string", "Only this action, such as execute")),
			opt("since", about("string", "Only entries from this time on, RFC 3339")),
		),
		out: output(
			need("entries", typed("array")),
			need("total", about("integer", "Entries without the limit")),
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
			return answer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "since is %s, which is not a time", sandboxmcp.Quote(text)).
				WithHint("use a time with its zone, such as 2026-01-31T09:00:00Z")
		}
	}
	page, err := s.engine.Audit(ctx, c.who, q)
	if err != nil {
		return answer{}, err
	}
	page.Entries = some(page.Entries)
	return answer{body: page}, nil
}

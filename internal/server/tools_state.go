package server

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// listRuntimes is the row of list_runtimes.
func listRuntimes() tool {
	return tool{
		name:  "list_runtimes",
		title: "List languages and backends",
		description: "Lists the languages that can be run, with version and packages, and the backends, with the walls that they build. " +
			"If one is not available, the reason is given.",
		hints: hints{readOnly: true, idempotent: true},
		in:    input(),
		out:   output(need("runtimes", typed("array")), need("backends", typed("array"))),
		run: func(s *Server, ctx context.Context, _ *call) (answer, error) {
			r, err := s.engine.Runtimes(ctx)
			if err != nil {
				return answer{}, err
			}
			if s.small {
				return answer{body: shownRuntimes(r, s.notes())}, nil
			}
			r.Runtimes, r.Backends = each(r.Runtimes), each(r.Backends)
			for i := range r.Runtimes {
				r.Runtimes[i].PackagesPreloaded = some(r.Runtimes[i].PackagesPreloaded)
			}
			for i := range r.Backends {
				r.Backends[i].Isolation = wholeIsolation(r.Backends[i].Isolation)
			}
			return answer{body: struct {
				sandboxmcp.Runtimes
				Notes []string `json:"notes,omitempty"`
			}{r, s.notes()}}, nil
		},
	}
}

// sandboxStats is the row of sandbox_stats.
func sandboxStats() tool {
	return tool{
		name:        "sandbox_stats",
		title:       "Show load and counts",
		description: "Returns the load of the server: queue, live sessions, executions by status, latency in ms, memory and CPU time of the server.",
		hints:       hints{readOnly: true, idempotent: true},
		in:          input(),
		out: output(
			need("queue", about("object", "max_concurrent, active, queued, total_processed")),
			need("sessions", typed("integer")),
			need("executions", about("object", "Count by status")),
			need("latency_ms", typed("object")),
			need("pool", typed("object")),
			need("resources", typed("object")),
			need("record", about("object", "Audit record: signed, reason")),
		),
		run: func(s *Server, ctx context.Context, _ *call) (answer, error) {
			st, err := s.engine.Stats(ctx)
			if err != nil {
				return answer{}, err
			}
			if st.Executions == nil {
				st.Executions = map[sandboxmcp.Status]int64{}
			}
			if st.Pool == nil {
				st.Pool = map[string]int{}
			}
			return answer{body: st}, nil
		},
	}
}

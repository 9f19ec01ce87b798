package server

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// setResourceLimits is the row of set_resource_limits.
func setResourceLimits() tool {
	return tool{
		name:  "set_resource_limits",
		title: "Set resource limits",
		description: "Sets the default limits of runs and new sessions in this namespace, permanently. Existing sessions keep their limits. " +
			"A limit above its ceiling is lowered and named in clamped. Without arguments it changes nothing and returns the limits.",
		hints: hints{idempotent: true},
		in: input(
			opt("max_ram_mb", limitSchema("")),
			opt("max_cpu_cores", above(typed("number"), 0)),
			opt("timeout_seconds", limitSchema("")),
			opt("max_processes", limitSchema("")),
			opt("max_output_bytes", limitSchema("Per stream")),
		),
		out: output(
			need("previous", typed("object")),
			need("current", typed("object")),
			need("clamped", typed("array")),
		),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			done, err := s.engine.SetLimits(ctx, c.who, sandboxmcp.LimitsChange{Limits: c.args.limits()})
			if err != nil {
				return answer{}, err
			}
			done.Clamped = some(done.Clamped)
			return answer{body: done}, nil
		},
	}
}

package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Doctor tries everything that a run needs on this machine, wall by wall. For anything
// missing it returns the reason and the fix. It runs no code of a caller.
func Doctor(ctx context.Context, o Options) []sandboxmcp.Check {
	checks := []sandboxmcp.Check{checkState(ctx, o)}
	b := process.New(processConfig(o.Config, o.Logger, o.Env))
	checks = append(checks, b.Checks(ctx)...)
	list, err := b.Interpreters(ctx)
	if err != nil {
		checks = append(checks, sandboxmcp.Check{Name: "interpreters", Detail: err.Error()})
	}
	for _, r := range list {
		c := sandboxmcp.Check{Name: string(r.Language), OK: r.Available, Detail: r.Version + " at " + r.Path}
		if !r.Available {
			c.Detail, c.Fix = "no interpreter on the PATH", r.Hint
		}
		checks = append(checks, c)
		if r.Available {
			checks = append(checks, checkAhead(ctx, o, b, r.Language))
		}
		if r.Language == sandboxmcp.Python && r.Available {
			checks = append(checks, checkSets(ctx, o, r)...)
			checks = append(checks, checkImports(ctx, o, b, r)...)
		}
	}
	if err := b.Close(context.WithoutCancel(ctx)); err != nil {
		checks = append(checks, sandboxmcp.Check{Name: "clean end", Detail: err.Error(), Fix: "report this as a bug: the trial left something behind"})
	}
	return checks
}

func checkState(ctx context.Context, o Options) sandboxmcp.Check {
	c := sandboxmcp.Check{Name: "state directory", Needed: true, OK: true, Detail: o.Config.StateDir}
	s, err := store.Open(ctx, store.Config{Dir: o.Config.StateDir, SQLitePath: o.Config.SQLitePath, Logger: o.Logger})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		e := sandboxmcp.AsError(err)
		c.OK, c.Detail, c.Fix = false, e.Message, e.Hint
	}
	return c
}

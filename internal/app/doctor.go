package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// diagnose tries everything that a run needs on this machine, wall by wall. For anything
// missing it returns the reason and the fix. It runs no code of a caller.
func diagnose(ctx context.Context, o Options) []sandboxmcp.Check {
	checks := []sandboxmcp.Check{checkState(ctx, o)}
	b, err := engine.ProcessBackend(o.Options)
	if err != nil { // they were read once already, so the file has changed since
		return append(checks, sandboxmcp.Check{Name: "settings", Detail: err.Error(), Needed: true})
	}
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
		if r.Available {
			startable(ctx, o, b, &c, r.Language)
		}
		checks = append(checks, c)
		if c.OK {
			checks = append(checks, checkAhead(ctx, o, b, r.Language))
		}
		if r.Language == sandboxmcp.Python && r.Available {
			checks = append(checks, checkSets(ctx, o, r)...)
			checks = append(checks, checkImports(ctx, o, b, r)...)
		}
	}
	checks = append(checks, checkDocker(ctx, o)...)
	checks = append(checks, checkAdded(ctx, o)...)
	if err := b.Close(context.WithoutCancel(ctx)); err != nil {
		checks = append(checks, sandboxmcp.Check{Name: "clean end", Detail: err.Error(), Fix: "report this as a bug: the trial left something behind"})
	}
	return checks
}

// checkDocker tries the docker backend, if runs use it.
func checkDocker(ctx context.Context, o Options) []sandboxmcp.Check {
	b, err := engine.DockerBackend(o.Options)
	if err != nil {
		return []sandboxmcp.Check{{Name: "docker", Detail: err.Error(), Needed: true}}
	}
	if b == nil {
		return nil
	}
	checks := b.Checks(ctx)
	if err = b.Close(context.WithoutCancel(ctx)); err != nil {
		checks = append(checks, sandboxmcp.Check{Name: "docker: clean end", Detail: err.Error(), Fix: "report this as a bug: the trial left something behind"})
	}
	return checks
}

// checker is a backend that reports its walls.
type checker interface {
	Checks(ctx context.Context) []sandboxmcp.Check
}

// checkAdded tries the backend of another module that runs use, and closes them all.
func checkAdded(ctx context.Context, o Options) []sandboxmcp.Check {
	var checks []sandboxmcp.Check
	for _, b := range o.Backends {
		if c, ok := b.(checker); ok && b.Name() == o.Config.DefaultBackend {
			checks = append(checks, c.Checks(ctx)...)
		}
		if err := b.Close(context.WithoutCancel(ctx)); err != nil {
			checks = append(checks, sandboxmcp.Check{Name: b.Name() + ": clean end", Detail: err.Error(), Fix: "report this as a bug: the trial left something behind"})
		}
	}
	return checks
}

func checkState(ctx context.Context, o Options) sandboxmcp.Check {
	with := storeOf(o.Config)
	with.Logger = o.Logger
	return checkStore(ctx, o.Config.StateDir, with)
}

// checkStore checks that the record can be opened and that the disk has the space that runs need.
func checkStore(ctx context.Context, dir string, with store.Config) sandboxmcp.Check {
	c := sandboxmcp.Check{Name: "state directory", Needed: true, OK: true, Detail: dir}
	s, err := store.Open(ctx, with)
	if err == nil {
		err = errors.Join(s.CheckSpace(), s.Close())
	}
	if err != nil {
		e := sandboxmcp.AsError(err)
		c.OK, c.Detail, c.Fix = false, e.Message, e.Hint
	}
	return c
}

// checkSets hashes every file of the package sets of an interpreter.
func checkSets(ctx context.Context, o Options, r sandboxmcp.Runtime) []sandboxmcp.Check {
	library := environment.New(environment.Config{Dir: environment.Dir(o.Config.StateDir), Logger: o.Logger})
	var checks []sandboxmcp.Check
	sets := library.Active(environment.Python{Path: r.Path, Version: r.Version})
	for _, recipe := range environment.Recipes() {
		c := sandboxmcp.Check{Name: recipe.Name + " packages", Detail: "not installed", Fix: "run `sandboxmcp setup " + recipe.Name + "`"}
		if _, err := library.All(); err != nil {
			c.Detail = err.Error()
		}
		if i := slices.IndexFunc(sets, func(s environment.Set) bool { return s.Name == recipe.Name }); i >= 0 {
			s := sets[i]
			c.Detail = fmt.Sprintf("%d packages, %d MiB, every file hashed", len(s.Wheels), s.Files.Bytes>>20)
			if err := library.Verify(ctx, s); err != nil {
				c.Detail = err.Error()
			} else {
				c.OK, c.Fix = true, ""
			}
		}
		checks = append(checks, c)
	}
	return checks
}

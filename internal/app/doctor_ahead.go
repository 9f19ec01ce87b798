package app

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// startLimit bounds the trial of an interpreter.
const startLimit = 30 * time.Second

// startable checks whether a program of the language starts in a sandbox that shows what one of a run shows. The trial
// sandbox of the walls has no interpreter.
func startable(ctx context.Context, o Options, b backend.Backend, c *sandboxmcp.Check, l sandboxmcp.Language) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	finder := interpreter.New(ctx, interpreter.Config{StateDir: o.Config.StateDir, MinTier: o.Config.IsolationMin, Logger: o.Logger})
	in, err := finder.Find(ctx, b, l)
	if err == nil {
		err = starts(ctx, b, in, l)
	}
	cancel()
	finder.Wait()
	if err == nil {
		return
	}
	why := err.Error()
	if e, ok := errors.AsType[*sandboxmcp.Error](err); ok {
		why = e.Message
	}
	c.OK, c.Detail = false, c.Detail+", but no program could be started: "+why
	c.Needed = sandboxmcp.CodeOf(err) == sandboxmcp.CodeIsolationUnavailable // it concerns programs of every language
	c.Fix = "look at what else is missing; if nothing is, put an interpreter that every user can execute, such as one below /usr, first on the PATH"
}

// starts runs a program that does nothing.
func starts(ctx context.Context, b backend.Backend, in interpreter.Interpreter, l sandboxmcp.Language) error {
	proc, err := kernel.Plan(in.Program(sandboxmcp.Request{Language: l, Code: "\n"}, nil))
	if err != nil {
		return err
	}
	return small(ctx, b, in, proc)
}

// aheadLimit bounds the trial of interpreters that are started ahead.
const aheadLimit = 5 * time.Second

// checkAhead checks whether the next program finds an interpreter that was started ahead.
// It runs small programs until the pool holds one. Runs work without one, but take longer
// than a few milliseconds.
func checkAhead(ctx context.Context, o Options, b backend.Backend, l sandboxmcp.Language) sandboxmcp.Check {
	c := sandboxmcp.Check{Name: string(l) + " ahead"}
	pool, ok := b.(backend.Pooler)
	found, err := b.Interpreter(ctx, l)
	in := interpreter.Interpreter{Interpreter: found}
	switch {
	case err != nil || !ok:
		c.Detail = "this backend starts nothing ahead"
		return c
	case !o.Config.SandboxPool:
		c.Detail, c.Fix = "turned off: sandbox_pool is false", "set sandbox_pool to true"
		return c
	}
	what, count := "started interpreters wait in sandboxes that are ready", "processes_ahead"
	if l == sandboxmcp.Python {
		what, count = "programs are forked from a started interpreter, behind all walls", "zygotes"
		if c.Detail, c.Fix = unforkable(in); c.Detail != "" {
			return c
		}
	}
	proc, err := kernel.Plan(in.Program(sandboxmcp.Request{Language: l, Code: "\n"}, nil))
	if err == nil && proc.Prestart == nil {
		c.Detail = "each program starts an interpreter: " + in.Path + " cannot be started before its program is known"
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, aheadLimit)
	defer cancel()
	defer func() { _ = pool.Trim(context.WithoutCancel(ctx)) }()
	for err == nil {
		if err = small(ctx, b, in, proc); err != nil {
			break
		}
		for range 20 {
			if pool.Pool()[count] > 0 {
				c.OK, c.Detail = true, what
				return c
			}
			if sleep(ctx, 5*time.Millisecond) != nil {
				break
			}
		}
		err = ctx.Err()
		if why, ok := b.(backend.Prestarter); ok && l == sandboxmcp.Python && why.NotForked() != nil {
			err = why.NotForked()
		}
	}
	c.Detail = "each program starts an interpreter, which takes longer. The trial found none started ahead: " + err.Error()
	return c
}

// checkImports checks whether packages of a set are imported ahead. It runs a program
// that imports one until the pool holds an import, or until the backend says why there is
// none. It returns nil where packages are never imported ahead.
func checkImports(ctx context.Context, o Options, b backend.Backend, r sandboxmcp.Runtime) []sandboxmcp.Check {
	library := environment.New(environment.Config{Dir: environment.Dir(o.Config.StateDir), Logger: o.Logger})
	sets := library.Active(environment.Python{Path: r.Path, Version: r.Version})
	found, err := b.Interpreter(ctx, sandboxmcp.Python)
	in := interpreter.Interpreter{Interpreter: found}
	pool, ok := b.(interface {
		backend.Pooler
		backend.Prestarter
	})
	why, _ := unforkable(in)
	if len(sets) == 0 || err != nil || !ok || why != "" || !o.Config.SandboxPool {
		return nil
	}
	in = interpreter.With(found, sets, o.Config.IsolationMin)
	prog := in.Program(sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import numpy\n"}, nil)
	if prog.Preload = sets[0].Preload(prog.Code); prog.Preload == nil {
		return nil
	}
	c := sandboxmcp.Check{Name: "packages ahead"}
	ctx, cancel := context.WithTimeout(ctx, importsLimit)
	defer cancel()
	defer func() { _ = pool.Trim(context.WithoutCancel(ctx)) }()
	prog.Check = func(_ context.Context, loaded bool) error {
		if !loaded { // doctor discards the imported packages, so it checks their files only once, after the import
			return nil
		}
		return library.Verify(ctx, sets[0])
	}
	proc, err := kernel.Plan(prog)
	for err == nil {
		if err = small(ctx, b, in, proc); err != nil {
			break
		}
		for range 20 {
			if pool.Pool()["imports"] > 0 {
				c.OK, c.Detail = true, "packages are imported once in a sandbox, and programs start with a copy of its memory"
				return []sandboxmcp.Check{c}
			}
			if sleep(ctx, 20*time.Millisecond) != nil {
				break
			}
		}
		if err = ctx.Err(); pool.NotLoaded() != nil {
			err = pool.NotLoaded()
		}
	}
	c.Detail = "each program imports packages itself, which takes longer: " + err.Error()
	return []sandboxmcp.Check{c}
}

// importsLimit is how long the trial of importing packages may take.
const importsLimit = 30 * time.Second

// unforkable returns why programs cannot be forked from this Python, and the fix. Both
// are empty if they can.
func unforkable(in interpreter.Interpreter) (why, fix string) {
	_, rest, _ := strings.Cut(in.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, _ := strconv.Atoi(minor)
	const other = "put an interpreter of the system, such as /usr/bin/python3, first on the PATH"
	switch {
	case in.Virtual:
		return "each program starts an interpreter, which takes longer: " + in.Path + " belongs to a virtual environment", other
	case !in.TrustedForPreload:
		return "each program starts an interpreter, which takes longer: others than root can change " + in.Path + " or what it loads", other
	case n < 10:
		return "each program starts an interpreter, which takes longer: " + in.Path + " is older than 3.10", other
	}
	return "", ""
}

// small runs proc, a program that does nothing, in a sandbox like that of a request.
func small(ctx context.Context, b backend.Backend, in interpreter.Interpreter, proc backend.Process) error {
	const mib = 1 << 20
	limits := sandboxmcp.DefaultLimits()
	sb, err := b.Open(ctx, backend.Spec{
		ID: "doctor", Hint: string(in.Language), MemoryBytes: int64(limits.MaxRAMMB) * mib, CPUCores: limits.MaxCPUCores, MaxTasks: limits.MaxTasks(), CPUTime: time.Minute,
		WorkBytes: 16 * mib, WorkInodes: 100, TempBytes: 16 * mib, Trees: in.Trees,
	})
	if err != nil {
		return err
	}
	defer func() { _ = sb.Close(context.WithoutCancel(ctx)) }()
	r, err := sb.Start(ctx, proc)
	if err == nil {
		_, err = r.Wait(ctx)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

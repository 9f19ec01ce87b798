package engine

import (
	"context"
	"errors"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
)

// errAsked is the cause of a request's context when it was cancelled by its id.
var errAsked = errors.New("it was cancelled")

// beginRun begins the run of a request, and returns the context of its program. The caller calls
// Stop.
func (e *Engine) beginRun(x *execution) (*run.Run, context.Context) {
	mask := x.secrets.Masker()
	r, ctx := run.Begin(x.ctx, run.Config{
		Language: x.req.Language, Display: x.req.Display, Limits: x.limits, MinTier: e.cfg.MinTier, Now: e.cfg.Now,
		Masker: mask, Mask: func(r sandboxmcp.RichResult) sandboxmcp.RichResult { return guard.Result(mask, r) },
		Stdout: x.req.Stdout, Stderr: x.req.Stderr, Shown: x.req.Shown,
	})
	e.begun(x, r)
	return r, ctx
}

// execute runs a request, as a program or as a cell of its session's interpreter, until it has
// ended or was stopped.
func (e *Engine) execute(x *execution, interp interpreter.Interpreter, sb backend.Sandbox) (*run.Outcome, error) {
	if x.live == nil {
		return e.executeProgram(x, interp, sb)
	}
	e.log.Info("exec_start", "session_id", x.req.SessionID, "request_id", x.req.ID, "code_bytes", len(x.req.Code))
	x.live.Settle() // before the run's clock starts
	how := e.executeCell
	if x.live.Fresh() {
		how = e.executeProgram
	}
	o, err := how(x, interp, sb)
	if err != nil {
		e.log.Warn("exec_failed", "session_id", x.req.SessionID, "request_id", x.req.ID, "error", x.secrets.Masker().Text(err.Error()))
		return nil, err
	}
	e.log.Info("exec_done", "session_id", x.req.SessionID, "request_id", x.req.ID, "duration_ms", milliseconds(o.Ended.Sub(o.Started)), "stdout_bytes", x.run.Stdout.Size(), "stderr_bytes", x.run.Stderr.Size())
	return o, nil
}

func (e *Engine) executeProgram(x *execution, interp interpreter.Interpreter, sb backend.Sandbox) (*run.Outcome, error) {
	proc, err := e.planned(x, interp)
	if err != nil {
		return nil, err
	}
	r, ctx := e.beginRun(x)
	defer r.Stop()
	o, err := r.Program(x.ctx, ctx, run.Program{Process: proc, Sandbox: sb, Stays: x.live != nil})
	if err == nil && x.guarded && o.Report.Refused != nil {
		return nil, e.refusedBy(x, o.Report.Refused)
	}
	if s := o.Report.Syntax; err == nil && s != nil && loadsPackages(proc) && !e.isUncompiled(x) {
		o.Report.Syntax, o.Report.Error = nil, &sandboxmcp.ProgramError{Name: s.Name, Value: s.Message, Traceback: []string{}}
	}
	return &o, err
}

// loadsPackages reports whether code of packages may run in a process before its program.
func loadsPackages(p backend.Process) bool {
	return p.Prestart != nil && p.Prestart.Fork != nil && len(p.Prestart.Fork.Load) > 0
}

func (e *Engine) executeCell(x *execution, _ interpreter.Interpreter, _ backend.Sandbox) (*run.Outcome, error) {
	r, ctx := e.beginRun(x)
	defer r.Stop()
	python, node, paths := e.interps.Paths(x.live.installed(), x.live.interps[x.req.Language].Sets)
	cell := session.Cell{
		Language: x.req.Language,
		Cell:     kernel.Cell{Code: x.req.Code, Display: x.req.Display, Stdin: x.req.Stdin, Env: x.cellEnv(paths), Packages: python, Modules: node, Install: e.installFor(ctx, x)},
		Preload: func() ([]string, backend.LoadCheck) {
			return e.interps.Preload(x.req, x.live.interps[x.req.Language])
		},
		Stopping: func() bool { return e.ctx.Err() != nil },
	}
	if cell.Display == sandboxmcp.DisplayStdout { // a session returns the value of a last expression and never prints it
		cell.Display = sandboxmcp.DisplayResults
	}
	o, err := x.live.Execute(x.ctx, ctx, r, cell)
	return &o, err
}

// result builds the Result of an outcome.
func (x *execution) result(o *run.Outcome) sandboxmcp.Result {
	x.run.End()
	x.secrets.Report(&o.Report, x.run.Masks()...)
	res := x.run.Result(o)
	x.secrets.Describe(res.Metadata)
	if len(x.clamped) > 0 {
		res.Metadata["clamped"], res.Metadata["clamped_values"] = x.clamped, x.clampedValues()
	}
	res.RequestID, res.SessionID, res.Namespace, res.Backend = x.req.ID, x.sessionID(), x.who.Namespace, x.req.Backend
	res.SessionCreated = x.newborn
	res.DurationMS = milliseconds(o.Ended.Sub(x.admitted))
	res.Artifacts = []sandboxmcp.Artifact{}
	res.Network = sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}}
	return res
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func cancelledError(ctx context.Context) error { return run.Cancelled(ctx) }

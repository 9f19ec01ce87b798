package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/stack"
)

// The steps of a request, in their order:
//
//	validate → session → gate → packages → queue → intent, beside interpreter, sandbox and plan → network → vault → execute (streams masked) → collect → sign → audit → event → result
//
// Every step undoes itself by a defer. A Request goes in, a Result comes out.

// Execute runs one request. It returns when all its processes have ended; in a session,
// when its cell is done.
//
// If ctx ends while the request waits, the error has the code cancelled. If ctx ends
// while the program runs, the program and everything that it started are killed within 2
// s, and the Result has the status cancelled. All errors are *[sandboxmcp.Error].
func (e *Engine) Execute(ctx context.Context, c sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	stack.Grow()
	x, err := e.begin(ctx, order{who: c, req: req})
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	defer x.flush(ctx) // runs last: the caller's writers may be slow
	defer e.finish(x)
	return e.run(x) //nolint:contextcheck // its context is in x
}

// run takes an accepted request through all steps.
func (e *Engine) run(x *execution) (res sandboxmcp.Result, err error) {
	defer func() {
		if err != nil {
			res, err = sandboxmcp.Result{}, guard.Failure(x.secrets.Masker(), sandboxmcp.AsError(err))
		}
		x.res, x.err = res, err
	}()

	// session: claim it first, so that a busy session fails before anything waits
	if err = e.claim(x); err != nil {
		return res, err
	}
	defer e.unclaim(x)
	// gate: a dangerous cell, or a domain that is not open, fails before the request waits; which hosts it may reach
	if x.network, err = e.permit(x); err != nil {
		return res, err
	}
	// packages: find or install what the request asks for; pip and npm take a place in the queue themselves
	if err = e.fetchPackages(x); err != nil {
		return res, err
	}
	// queue: wait for a place and for the sandbox's kernel tasks; both are released at the end
	if err = e.admit(x); err != nil {
		return res, err
	}
	defer x.giveBack()
	if e.ctx.Err() != nil { // Close ended another run and so freed this place; x.ctx may not have ended yet
		return res, cancelledError(e.ctx)
	}
	if err = e.store.CheckSpace(); err != nil { // the disk may have filled while it waited
		return res, err
	}
	x.admitted = e.cfg.Now()

	// intent, interpreter and sandbox: the audit intent is recorded while the interpreter is found and the sandbox is
	// built, or while the files of a live session are noted. Nothing runs in the sandbox before all three succeed, so no
	// run is missing in the audit log.
	x.secrets = e.secretsOf(x)
	intent := e.recordIntent(x)
	interp, sb, openErr := e.place(x)
	if openErr == nil && x.session == nil {
		defer e.discard(x.ctx, sb, x.holds)
	}
	// network: opened if the run may reach any host; the gate is asked again at each connection
	if openErr == nil {
		openErr = e.connect(x, sb)
		defer func() { x.network.End(x.live != nil) }()
	}
	if openErr == nil {
		e.planAhead(x, interp)
	}
	if err = <-intent; err != nil {
		return res, err
	}
	defer func() {
		if err != nil {
			e.recordFailure(x, err)
			e.events.Emit(x.eventsOf().Failed(sandboxmcp.CodeOf(err)))
		}
	}()
	if openErr != nil {
		return res, openErr
	}
	// vault: inject the secrets that the intent lists
	if x.req.Env, err = e.inject(x); err != nil {
		return res, err
	}
	// network: apply this run's policy, also to processes that earlier runs left behind
	if err = e.letOut(x); err != nil {
		return res, err
	}

	// execute: until all processes of the program have ended or, in a session, its cell is done
	e.events.Emit(x.eventsOf().Started())
	o, err := e.execute(x, interp, sb)
	if err != nil {
		return res, err
	}
	res = x.result(o)
	e.reportNetwork(x, &res)

	// collect: the files that it made or changed
	if err = e.collect(x, sb, o, &res); err != nil {
		return res, err
	}
	res.Note = e.noteOf(x, &res)
	// sign: each file, and the receipt
	out, err := e.sign(x, o, &res)
	if err != nil {
		return res, err
	}
	// audit: record the result and the outcome together, before the caller gets the result
	if err = e.recordOutcome(x, o, out, &res); err != nil {
		return res, err
	}
	// event: publish, without waiting for subscribers
	e.events.Emit(x.eventsOf().Ended(&res, x.limits)...)
	return res, nil
}

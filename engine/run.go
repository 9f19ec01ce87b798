package engine

import (
	"context"
	"errors"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// The way of a request, from top to bottom. The order is kept for the stages
// that are still to come:
//
//	validate → session → gate → queue → syntax → vault → network → execute (streams masked) → collect → sign → audit → event → result
//
// Every stage undoes itself by a defer. One Request goes down, one Result comes up.

// Execute runs one request and returns when nothing of it lives any more.
//
// When ctx ends while it waits, the error has the code cancelled; when it ends
// while the program runs, the program and everything that it started is killed
// within 2 s and the Result has the status cancelled. All errors are
// *[sandboxmcp.Error].
func (e *Engine) Execute(ctx context.Context, c sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	x, err := e.begin(ctx, c, req, false)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	defer x.flush(ctx) // after everything else: the caller's own writers may be slow
	defer e.finish(x)  //nolint:contextcheck // what goes on after the answer ends with the engine
	return e.run(x)    //nolint:contextcheck // its context is in x
}

// run takes an accepted request the whole way.
func (e *Engine) run(x *execution) (res sandboxmcp.Result, err error) {
	defer func() {
		if err != nil {
			res, err = sandboxmcp.Result{}, x.guard.failure(sandboxmcp.AsError(err))
		}
		x.res, x.err = res, err
	}()

	// session: whose sandbox it is; one in use is told before anything waits
	if err = e.claim(x); err != nil {
		return res, err
	}
	defer e.unclaim(x)
	// gate: where to it may go; who would go further is told before anything waits
	if err = e.mayReach(x); err != nil {
		return res, err
	}
	// queue: wait for a place and for the sandbox's tasks; both are released at the end
	if err = e.enter(x); err != nil {
		return res, err
	}
	if x.ticket.Wait(x.ctx, x.tasks()) != nil {
		return res, cancelledError(x.ctx)
	}
	defer x.giveBack()
	if e.ctx.Err() != nil { // admitted in the place of one that Close has just ended, before its own context has heard
		return res, cancelledError(e.ctx)
	}
	if err = e.store.CheckSpace(); err != nil { // it may have waited for long
		return res, err
	}
	x.admitted = e.cfg.Now()

	// intent, runtime and sandbox: the one is written down while the others, which interpreter with which packages, and a
	// fresh sandbox for a single request, are got. What cannot be recorded is not done: nothing runs in the sandbox before
	// all are there.
	intent := e.recordIntent(x)
	interp, sb, openErr := e.place(x)
	if openErr == nil && x.session == nil {
		defer e.discard(x.ctx, sb)
	}
	// network: its way out, when there is anywhere to go. What is open is looked up at each connection.
	if openErr == nil {
		openErr = e.connect(x, sb)
		defer e.disconnect(x)
	}
	if err = <-intent; err != nil {
		return res, err
	}
	defer func() {
		if err != nil {
			e.recordFailure(x, err)
			e.tellFailed(x, err)
		}
	}()
	if openErr != nil {
		return res, openErr
	}
	// vault: the secrets that the record now says the program gets
	if err = e.unlock(x); err != nil {
		return res, err
	}
	// … and no further than the record says now: what is left running of earlier runs is held to it as well
	if err = e.letOut(x); err != nil {
		return res, err
	}

	// execute: until the program ends or is ended, and nothing of it lives; or, in a session, until its cell is done
	e.tellStarted(x)
	o, err := e.executeIn(x, interp, sb)
	if err != nil {
		return res, err
	}
	res = x.result(o)
	e.tellNetwork(x, &res)

	// collect: files, now that nothing can change them any more
	if err = e.collect(x, sb, &res); err != nil {
		return res, err
	}
	// sign: the files and the whole
	if err = e.sign(x, &res); err != nil {
		return res, err
	}
	// audit: the outcome and what is kept of it, in one transaction; answered means committed
	if err = e.recordOutcome(x, o, &res); err != nil {
		return res, err
	}
	// event: told to whoever listens, who is not waited for
	e.tellEnded(x, &res)
	return res, nil
}

// execute starts the program and waits for its end: its own, or one of ours.
func (e *Engine) execute(x *execution, interp interpreter, sb backend.Sandbox) (*outcome, error) {
	proc, err := e.plan(x.req, interp, x.environ())
	if err != nil {
		return nil, err
	}
	ctx, o, stop := e.attend(x)
	defer stop()
	proc.Stdin, proc.Stdout, proc.Stderr = x.req.Stdin, o.stdout, o.stderr
	before := backend.Usage{}
	end := sb.Kill
	if x.session != nil {
		end = sb.Clear
		if before, err = taken(ctx, sb); err != nil {
			return nil, err
		}
	}
	running, err := sb.Start(x.ctx, proc) // not ctx: time that is up meanwhile is a timeout, not a cancellation
	if err != nil {
		return nil, startError(x.ctx, err)
	}
	report := listen(running, x.shown.Add)
	walls := look(ctx, sb)

	o.exit, err = running.Wait(ctx)
	o.cause = context.Cause(ctx)
	if err != nil && o.cause == nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the program could not be started").WithCause(err)
	}
	o.stopped = err != nil
	o.isolation, err = (<-walls).get(e.cfg.MinTier)
	if err != nil {
		return nil, errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	// Whatever it left behind ends here, and with it every holder of its streams.
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
	defer cancel()
	if err = end(down); err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the sandbox could not be ended").WithCause(err)
	}
	if o.report, err = gather(down, running, report); err != nil {
		return nil, err
	}
	x.ended = e.cfg.Now()
	used, err := taken(ctx, sb)
	if err != nil {
		return nil, err
	}
	o.usage = since(before, used)
	if o.exit.Lost && !o.stopped && o.usage.OOMKills == 0 {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the sandbox ended under the program")
	}
	return o, nil
}

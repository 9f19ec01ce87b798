package session

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// Cell is a run in the interpreter of a session.
type Cell struct {
	Language    sandboxmcp.Language
	kernel.Cell // Display is none or results: a session never prints the value of a last expression

	// Preload returns what an interpreter that is started now may import ahead; see
	// kernel.Program.
	Preload func() (modules []string, check backend.LoadCheck)

	// Stopping reports whether the server is being stopped. A cell whose context ends is then
	// killed at once, as is one that writes too much. Others are interrupted, and killed if
	// that does not help.
	Stopping func() bool
}

// cellEnd says how a cell ended.
type cellEnd struct {
	report kernel.Report
	err    error
	mute   bool  // its process did not end by itself and was killed
	cause  error // why ctx had ended when the cell was done or its process had ended; nil: it had not

	// If err is nil, this was read when the cell was done.
	unread error // why its output could not be read
	used   measured
}

// Execute runs a cell in the session's interpreter of a language that was added. It starts the
// interpreter if it is not running, and returns when the cell is done or the interpreter has
// ended. request is the context of the whole request: the start of the interpreter fails when it
// ends. ctx is that of run.Begin. If the sandbox has ended under the cell, the session is removed
// from its table, and Execute fails with session_expired.
func (l *Live) Execute(request, ctx context.Context, r *run.Run, c Cell) (o run.Outcome, err error) {
	o.Started = r.Started()
	i := l.interps[c.Language]
	before := l.used(ctx)
	if before.err != nil {
		return o, before.err
	}
	_ = l.notice(ctx) // output between runs belongs to no run
	known := i.kernel != nil
	if err = l.start(request, r, i, c); err != nil {
		return o, err
	}
	walls := l.walls.look(ctx, l.cfg.Sandbox)

	end := l.cell(ctx, r, i, c)
	if known && ctx.Err() == nil && i.endedBefore(end) {
		if err = l.forget(ctx, i); err != nil {
			return o, run.OutputLost(err)
		}
		if err = l.start(request, r, i, c); err != nil {
			return o, err
		}
		end = l.cell(ctx, r, i, c)
	}
	o.Cause = end.cause
	unread, used := end.unread, end.used
	if errors.Is(end.err, kernel.ErrUnread) {
		unread = end.err
	}
	o.Report = end.report
	o.Report.Syntax = nil // the interpreter's own error is the answer
	switch {
	case end.err == nil:
		o.Exit = backend.Exit{Code: end.report.Exit}
		o.Stopped = o.Cause != nil
	case o.Cause != nil: // the interpreter was killed
		o.Stopped = true
	case end.mute: // it was alive but its channel was unusable
		o.Exit = backend.Exit{Code: 1}
	default:
		o.Exit = i.exit
	}
	o.Isolation, err = (<-walls).Isolation(r.MinTier)
	if end.err != nil || unread != nil {
		unread = errors.Join(unread, l.forget(ctx, i))
		used = l.measure(ctx)()
	}
	i.out[0].Turn(nil)
	i.out[1].Turn(nil)
	if unread != nil {
		return o, run.OutputLost(unread)
	}
	if end.mute && o.Cause == nil {
		r.Stderr.Line("The program closed the interpreter's own channel (descriptors 3 and 4) or wrote to it, so the interpreter was ended")
	}
	l.report(request, ctx, &o)
	o.Ended = r.Now()
	if used.err != nil {
		return o, used.err
	}
	o.Usage = run.Since(before.usage, used.usage)
	if o.Report.Results == nil {
		o.Report.Results = []sandboxmcp.RichResult{}
	}
	if err == nil && o.Exit.Lost && !o.Stopped && o.Usage.OOMKills == 0 {
		err = l.ended("under the program") //nolint:contextcheck // the session ends whatever becomes of the request
	}
	return o, err
}

var errLate = errors.New("the output of the cell could not be read in time")

// conclude reads the output of a cell that is done, and what the sandbox has used. What the cell has left behind can keep
// the output from being read for as long as it runs. After flushLimit conclude calls late, so that nobody waits for it.
func (l *Live) conclude(ctx context.Context, proc backend.Running, late func()) (used measured, unread error) {
	get := l.measure(ctx)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	stop := context.AfterFunc(limited, late)
	unread = proc.Flush(backend.Blocking(limited))
	stop()
	return get(), unread
}

// start starts the interpreter of a cell if it is not running, and connects its output with the run.
func (l *Live) start(request context.Context, r *run.Run, i *interpreter, c Cell) error {
	program := i.program
	if i.kernel == nil {
		program.Preload, program.Check = c.Preload()
	}
	if err := l.ready(request, i, program); errors.Is(err, fs.ErrClosed) && request.Err() == nil {
		return l.ended("before the program started") //nolint:contextcheck // the session ends whatever becomes of the request
	} else if err != nil {
		return run.StartError(request, err)
	}
	i.out[0].Turn(r.Stdout)
	i.out[1].Turn(r.Stderr)
	return nil
}

// endedBefore reports whether the interpreter ended, by what an earlier run left behind, before it
// tried the cell. The cell can then run in a new interpreter.
func (i *interpreter) endedBefore(end cellEnd) bool {
	began := end.report.Tried || end.report.Started || end.report.Syntax != nil
	return end.err != nil && !errors.Is(end.err, kernel.ErrUnread) && !end.mute && !began && !i.exit.Lost
}

// ended removes the session, whose sandbox has ended by itself, and returns the error that says so.
func (l *Live) ended(when string) error {
	l.entry.t.Lost(l.entry)
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionExpired, "the session's sandbox ended %s", when).WithHint("create a new session")
}

// report says in an outcome which interpreters have lost their state since the last result. A
// caller that still waits gets that result.
func (l *Live) report(request, ctx context.Context, o *run.Outcome) {
	_ = l.notice(ctx) // one that has ended with this cell has written nothing for this run
	lost, kept := l.lose()
	if o.StateLost = len(lost) > 0; kept {
		o.StateLostIn = lost
	}
	if request.Err() != nil {
		return
	}
	for _, i := range l.interps {
		i.lost = false
	}
}

// cell has the interpreter run a cell. It returns when the cell is done or the
// interpreter has ended. If ctx ends, it interrupts the cell, and kills the interpreter
// if that does not help.
func (l *Live) cell(ctx context.Context, r *run.Run, i *interpreter, c Cell) (end cellEnd) {
	talk, hush := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hush(nil)
	running, done := context.WithCancel(talk) // ends when the driver says that the cell is done
	defer done()
	stop := func() {
		if running.Err() == nil {
			hush(nil)
		}
	}
	defer i.onGone(func() { // its last report may still be on the way
		time.AfterFunc(interruptLimit/10, stop)
	})()
	interrupted := make(chan struct{})
	calm := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		if run.Flooded(ctx) || c.Stopping() {
			stop()
			return
		}
		i.interrupt(context.WithoutCancel(ctx), running, stop)
	})
	c.Interrupted, i.interrupted = i.interrupted, false
	proc := i.proc // conclude may outlive the cell
	var cause, unread error
	var used measured
	c.Then = func() {
		done()
		cause = context.Cause(ctx) // reading the output takes no time of the cell
		used, unread = l.conclude(ctx, proc, func() { hush(errLate) })
	}
	end.report, end.err = i.kernel.Execute(talk, c.Cell, r.Show)
	done()
	if !calm() {
		<-interrupted
		i.interrupted = true
	}
	switch {
	case end.err == nil:
		end.cause, end.unread, end.used = cause, unread, used
	case end.report.Done && errors.Is(context.Cause(talk), errLate): // conclude may still be reading
		end.cause, end.err, end.unread = cause, nil, errLate
	default: // the process may not be reaped yet
		end.mute = !l.await(ctx, i)
		end.cause = context.Cause(ctx)
	}
	return end
}

// interrupt interrupts a cell. If the cell has not ended after interruptLimit, it calls stop.
func (i *interpreter) interrupt(ctx, running context.Context, stop func()) {
	if running.Err() != nil {
		return
	}
	patience, again := time.NewTimer(interruptLimit), time.NewTicker(interruptLimit/20)
	defer patience.Stop()
	defer again.Stop()
	i.signal(ctx)
	for times := 1; ; times++ {
		select {
		case <-running.Done():
			return
		case <-patience.C:
			stop()
			return
		case <-again.C:
			i.remind(ctx, times)
		}
	}
}

// remind repeats an interrupt that may have come too early: just before Python began a
// system call, which any signal that its driver handles interrupts, or while a shell was
// starting a program. It is called every twentieth of interruptLimit.
func (i *interpreter) remind(ctx context.Context, times int) {
	switch {
	case i.program.Language == sandboxmcp.Python:
		_ = i.proc.Signal(ctx, sigURG)
	case i.program.Language == sandboxmcp.Shell && times == 6: // once; Node's driver needs none, and a late one could end the next cell
		i.signal(ctx)
	}
}

// signal sends SIGINT, and waits until the process has it, so that a later cell does not get it.
func (i *interpreter) signal(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, interruptLimit/4)
	defer cancel()
	_ = i.proc.Interrupt(limited)
}

// sigURG is SIGURG of Linux: sandboxes run Linux on every backend.
const sigURG = 23

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
	mute   bool // its process did not end by itself and was killed
}

// Execute runs a cell in the session's interpreter of a language that was added. It starts the
// interpreter if it is not running, and returns when the cell is done or the interpreter has
// ended. request is the context of the whole request: the start of the interpreter fails when it
// ends. ctx is that of run.Begin. If the sandbox has ended under the cell, the session is removed
// from its table, and Execute fails with session_expired.
func (l *Live) Execute(request, ctx context.Context, r *run.Run, c Cell) (o run.Outcome, err error) {
	o.Started = r.Started()
	i := l.interps[c.Language]
	if l.used == nil {
		l.used = l.measure(ctx)
	}
	before := <-l.used
	if l.used = nil; before.err != nil {
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
	o.Cause = context.Cause(ctx)
	var unread error
	var after <-chan measured
	if end.err == nil {
		after = l.measure(ctx)
		unread = i.flush(ctx)
	} else if errors.Is(end.err, kernel.ErrUnread) {
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
		after = l.measure(ctx)
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
	used := <-after
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

// flush reads what a cell that is done has written. What it has left behind can keep the output from being
// read for as long as it runs, so flush does not wait for that. The caller then ends the interpreter.
func (i *interpreter) flush(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	return i.proc.Flush(limited)
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
func (l *Live) cell(ctx context.Context, r *run.Run, i *interpreter, c Cell) cellEnd {
	talk, hush := context.WithCancel(context.WithoutCancel(ctx))
	defer hush()
	done := make(chan cellEnd, 1)
	go func() {
		rep, err := i.kernel.Execute(talk, c.Cell, r.Show)
		done <- cellEnd{report: rep, err: err}
	}()
	asked := ctx.Done()
	gone := (<-chan struct{})(i.gone)
	var patience, again <-chan time.Time
	times := 0
	for {
		select {
		case end := <-done:
			if end.err != nil { // the process may not be reaped yet
				end.mute = !l.await(ctx, i)
			}
			return end
		case <-gone: // its last report may still be on the way
			gone = nil
			time.AfterFunc(interruptLimit/10, hush)
		case <-asked:
			asked = nil
			if run.Flooded(ctx) || c.Stopping() {
				hush()
				continue
			}
			_ = i.proc.Interrupt(context.WithoutCancel(ctx))
			t, tick := time.NewTimer(interruptLimit), time.NewTicker(interruptLimit/20)
			defer t.Stop()
			defer tick.Stop()
			patience, again = t.C, tick.C
		case <-again:
			times++
			i.remind(context.WithoutCancel(ctx), times)
		case <-patience:
			patience = nil
			hush()
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
		_ = i.proc.Interrupt(context.WithoutCancel(ctx))
	}
}

// sigURG is SIGURG of Linux: sandboxes run Linux on every backend.
const sigURG = 23

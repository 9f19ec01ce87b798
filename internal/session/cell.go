package session

import (
	"context"
	"errors"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// Cell is a run in the interpreter of a session.
type Cell struct {
	kernel.Cell // Display is none or results: a session never prints the value of a last expression

	// Preload returns what an interpreter that is started now may import ahead; see
	// kernel.Program.
	Preload func() (modules []string, loaded func(context.Context) error)

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

// Execute runs a cell in the session's interpreter, which it starts if it is not running. It
// returns when the cell is done or the interpreter has ended. request is the context of the
// whole request: the start of the interpreter fails when it ends. ctx is that of
// run.Begin. If the sandbox has ended under the cell, the session is removed from its table,
// and Execute fails with session_expired.
func (l *Live) Execute(request, ctx context.Context, r *run.Run, c Cell) (o run.Outcome, err error) {
	o.Started = r.Started()
	before, err := run.Usage(ctx, l.cfg.Sandbox)
	if err != nil {
		return o, err
	}
	program := l.cfg.Program
	if l.kernel == nil {
		program.Preload, program.Loaded = c.Preload()
	}
	if o.StateLost, err = l.ready(request, program); err != nil {
		return o, run.StartError(request, err)
	}
	l.out[0].Turn(r.Stdout)
	l.out[1].Turn(r.Stderr)
	walls := l.walls.look(ctx, l.cfg.Sandbox)

	end := l.cell(ctx, r, c)
	o.Cause = context.Cause(ctx)
	var unread error
	if end.err == nil {
		unread = l.proc.Flush(context.WithoutCancel(ctx))
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
		o.StateLost = true
	case end.mute: // it was alive but its channel was unusable
		o.StateLost = true
		o.Exit = backend.Exit{Code: 1}
	default:
		o.StateLost = true
		o.Exit = l.exit
	}
	o.Isolation, err = (<-walls).Isolation(r.MinTier)
	if end.err != nil || unread != nil {
		unread = errors.Join(unread, l.forget(ctx))
	}
	l.out[0].Turn(nil)
	l.out[1].Turn(nil)
	if unread != nil {
		return o, run.OutputLost(unread)
	}
	if end.mute && o.Cause == nil {
		r.Stderr.Line("The program closed the interpreter's own channel (descriptors 3 and 4) or wrote to it, so the interpreter was ended")
	}
	l.lost = l.lost && request.Err() != nil // a caller that still waits gets the result, which reports it
	o.Ended = r.Now()
	used, lack := run.Usage(ctx, l.cfg.Sandbox)
	if lack != nil {
		return o, lack
	}
	o.Usage = run.Since(before, used)
	if o.Report.Results == nil {
		o.Report.Results = []sandboxmcp.RichResult{}
	}
	if err == nil && o.Exit.Lost && !o.Stopped && o.Usage.OOMKills == 0 {
		l.entry.t.Lost(l.entry) //nolint:contextcheck // the session ends whatever becomes of the request
		err = sandboxmcp.Errorf(sandboxmcp.CodeSessionExpired, "the session's sandbox ended under the program").WithHint("create a new session")
	}
	return o, err
}

// cell has the interpreter run a cell. It returns when the cell is done or the
// interpreter has ended. If ctx ends, it interrupts the cell, and kills the interpreter
// if that does not help.
func (l *Live) cell(ctx context.Context, r *run.Run, c Cell) cellEnd {
	talk, hush := context.WithCancel(context.WithoutCancel(ctx))
	defer hush()
	done := make(chan cellEnd, 1)
	go func() {
		rep, err := l.kernel.Execute(talk, c.Cell, r.Show)
		done <- cellEnd{report: rep, err: err}
	}()
	asked := ctx.Done()
	gone := (<-chan struct{})(l.gone)
	var patience, again <-chan time.Time
	times := 0
	for {
		select {
		case end := <-done:
			if end.err != nil { // the process may not be reaped yet
				end.mute = !l.await(ctx)
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
			_ = l.proc.Interrupt(context.WithoutCancel(ctx))
			t, tick := time.NewTimer(interruptLimit), time.NewTicker(interruptLimit/20)
			defer t.Stop()
			defer tick.Stop()
			patience, again = t.C, tick.C
		case <-again:
			times++
			l.remind(context.WithoutCancel(ctx), times)
		case <-patience:
			patience = nil
			hush()
		}
	}
}

// remind repeats an interrupt that may have come too early: just before Python began a
// system call, which any signal that its driver handles interrupts, or while a shell was
// starting a program. It is called every twentieth of interruptLimit.
func (l *Live) remind(ctx context.Context, times int) {
	switch {
	case l.cfg.Program.Language == sandboxmcp.Python:
		_ = l.proc.Signal(ctx, sigURG)
	case l.cfg.Program.Language == sandboxmcp.Shell && times == 6: // once; Node's driver needs none, and a late one could end the next cell
		_ = l.proc.Interrupt(context.WithoutCancel(ctx))
	}
}

// sigURG is SIGURG of Linux: sandboxes run Linux on every backend.
const sigURG = 23

// await waits for the interpreter's process to end. It gives the process a moment to end
// by itself, unless ctx has ended, and then kills it. It reports whether the process
// ended by itself.
func (l *Live) await(ctx context.Context) bool {
	t := time.NewTimer(interruptLimit / 2)
	defer t.Stop()
	if ctx.Err() == nil {
		select {
		case <-l.gone:
			return true
		case <-t.C:
		}
	}
	l.clear(ctx)
	t.Reset(endLimit)
	select {
	case <-l.gone:
	case <-t.C:
		l.cfg.Logger.Error("an interpreter does not end")
	}
	return false
}

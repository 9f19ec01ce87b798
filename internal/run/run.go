// Package run runs one program, or one cell of an interpreter, in a sandbox: its output, what
// stops it, and its outcome. Programs are untrusted: all their output is masked, and what they
// report of themselves changes nothing but their own result.
package run

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// Config configures a Run.
type Config struct {
	Language sandboxmcp.Language
	Display  sandboxmcp.Display // of the request; if it shows no values, a syntax error is the interpreter's own failure
	Limits   sandboxmcp.Limits
	MinTier  sandboxmcp.Tier // a run with weaker isolation fails
	Now      func() time.Time

	Masker *redact.Masker                                    // masks stdout and stderr; nil: nothing is masked
	Mask   func(sandboxmcp.RichResult) sandboxmcp.RichResult // masks a displayed value
	Stdout io.Writer                                         // gets stdout while the program runs; nil: nothing does
	Stderr io.Writer                                         // the same of stderr
	Shown  sandboxmcp.ResultWriter                           // gets displayed values while the program runs; nil: nothing does
}

// Run is one run. Its methods may not be called concurrently, except Show. Its streams may be
// written to at any time.
type Run struct {
	Config

	Stdout, Stderr *stream.Capture // what the result shows
	shown          *stream.Results
	masks          [2]*redact.Stream // of stdout and stderr
	stop           func()
	started        time.Time
}

// Reasons why a Run stops its program, as the cause of its context. Every other cause is a
// cancellation.
var (
	errTimeout = errors.New("its time is up")
	errOutput  = errors.New("it wrote too much")
)

// KillLimit bounds the time to kill the processes of a run and to read the rest of their
// output.
const KillLimit = 10 * time.Second

// Begin begins a run: its clock starts. The context that it returns is that of the program: it
// ends on timeout, on too much output, or when ctx does. The caller calls Stop when the program
// has ended, and Close when nothing more is added to its output.
func Begin(ctx context.Context, cfg Config) (*Run, context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	over := func() { end(errOutput) }
	r := &Run{Config: cfg, masks: [2]*redact.Stream{cfg.Masker.Stream(), cfg.Masker.Stream()}}
	r.Stdout = stream.NewCapture(cfg.Limits.MaxOutputBytes, cfg.Stdout, over, streamMask(r.masks[0]))
	r.Stderr = stream.NewCapture(cfg.Limits.MaxOutputBytes, cfg.Stderr, over, streamMask(r.masks[1]))
	r.shown = stream.NewResults(cfg.Shown, cfg.Mask)
	r.started = cfg.Now()
	clock := time.AfterFunc(cfg.Limits.Timeout(), func() { end(errTimeout) })
	r.stop = func() {
		clock.Stop()
		end(nil)
	}
	return r, ctx
}

// streamMask returns m as a mask, or a nil interface if m is nil.
func streamMask(m *redact.Stream) stream.Mask {
	if m == nil {
		return nil
	}
	return m
}

// Started returns when the run began.
func (r *Run) Started() time.Time { return r.started }

// Flooded reports whether the context of a program ended because the program wrote too much.
func Flooded(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errOutput) }

// Show passes on a value that the program displays.
func (r *Run) Show(v sandboxmcp.RichResult) { r.shown.Add(v) }

// End says that the program writes no more. Output that was held back, because a secret might
// have begun there, is shown.
func (r *Run) End() {
	r.Stdout.End()
	r.Stderr.End()
}

// Masks returns the masks of stdout and stderr, which have noted the secrets of which only a
// part was seen. They are read after End.
func (r *Run) Masks() []*redact.Stream { return r.masks[:] }

// Stop stops the clock and ends the context.
func (r *Run) Stop() { r.stop() }

// Close ends the output. A nil Run has none.
func (r *Run) Close() {
	if r != nil {
		r.Stdout.Close()
		r.Stderr.Close()
		r.shown.Close()
	}
}

// Flush waits until the caller's writers have all output, or until ctx ends. It is called
// after Close. A nil Run has none.
func (r *Run) Flush(ctx context.Context) {
	if r != nil {
		r.Stdout.Flush(ctx)
		r.Stderr.Flush(ctx)
		r.shown.Flush(ctx)
	}
}

// Program is a program to run.
type Program struct {
	Process backend.Process // without stdout and stderr
	Sandbox backend.Sandbox
	Stays   bool // the sandbox stays after the run; else it is killed
}

// Program runs a program, and returns when all processes in the sandbox have ended. request is
// the context of the whole request: the start of the program fails when it ends. ctx is that of
// Begin.
func (r *Run) Program(request, ctx context.Context, p Program) (o Outcome, err error) {
	sb, end := p.Sandbox, p.Sandbox.Kill
	o.Started = r.started
	before := backend.Usage{}
	if p.Stays {
		end = sb.Clear
		if before, err = Usage(ctx, sb); err != nil {
			return o, err
		}
	}
	p.Process.Stdout, p.Process.Stderr = r.Stdout, r.Stderr
	running, err := sb.Start(request, p.Process) // not ctx: a timeout during the start is a timeout, not a cancellation
	if err != nil {
		return o, StartError(request, err)
	}
	report := listen(running, r.Show)
	walls := Observe(ctx, sb)

	o.Exit, err = running.Wait(ctx)
	o.Cause = context.Cause(ctx)
	if err != nil && o.Cause == nil {
		return o, notExecuted(err)
	}
	o.Stopped = err != nil
	o.Isolation, err = (<-walls).Isolation(r.MinTier)
	if err != nil {
		return o, errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	// Kill what it left behind, which may hold its streams open.
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), KillLimit)
	defer cancel()
	if err = end(down); err != nil {
		return o, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the sandbox could not be ended").WithCause(err)
	}
	if o.Report, err = gather(down, running, report); err != nil {
		return o, err
	}
	o.Ended = r.Now()
	used, err := Usage(ctx, sb)
	if err != nil {
		return o, err
	}
	o.Usage = Since(before, used)
	if o.Exit.Lost && !o.Stopped && o.Usage.OOMKills == 0 {
		return o, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the sandbox ended under the program")
	}
	return o, nil
}

// heard is a driver's report from the private channel. err is set if it was not read to
// its end.
type heard struct {
	report kernel.Report
	err    error
}

// listen reads the driver's report from the private channel.
func listen(r backend.Running, show func(sandboxmcp.RichResult)) <-chan heard {
	c := make(chan heard, 1)
	ch := r.Channel(0)
	if ch == nil {
		c <- heard{report: kernel.Report{Results: []sandboxmcp.RichResult{}}}
		return c
	}
	go func() {
		rep, err := kernel.Read(ch, show)
		c <- heard{rep, err}
	}()
	return c
}

// gather waits for the end of a dead program's streams and channel. If one of them is not
// read to its end, it fails with execution_failed. ctx bounds the wait.
func gather(ctx context.Context, r backend.Running, report <-chan heard) (kernel.Report, error) {
	err := r.Drain(ctx)
	var h heard
	select {
	case h = <-report:
	case <-ctx.Done():
		h.err = ctx.Err()
	}
	if err = errors.Join(err, h.err); err != nil {
		return kernel.Report{}, OutputLost(err)
	}
	return h.report, nil
}

// Usage returns what a sandbox has used so far, or zero if it was closed meanwhile.
func Usage(ctx context.Context, sb backend.Sandbox) (backend.Usage, error) {
	u, err := sb.Usage(context.WithoutCancel(ctx))
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		return u, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "what the program used could not be read").WithCause(err)
	}
	return u, nil
}

// Since returns the usage between two calls of Usage. Peaks are those of the sandbox's
// whole life.
func Since(before, after backend.Usage) backend.Usage {
	after.CPU = max(after.CPU-before.CPU, 0)
	after.OOMKills = max(after.OOMKills-before.OOMKills, 0)
	after.Exceeded = after.Exceeded[min(len(before.Exceeded), len(after.Exceeded)):]
	return after
}

package engine

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// liveSession is what a live session holds: its sandbox, and the interpreter that stays in it.
// Runs use it one at a time; files may be uploaded and read during a run.
type liveSession struct {
	sandbox   backend.Sandbox
	share     *queue.Share            // kernel tasks of the sandbox, until Close
	fresh     bool                    // each run starts its own interpreter
	program   kernel.Program          // how the interpreter is started
	interp    interpreter.Interpreter // the interpreter
	ended     func(error)             // called with the error of a failed Clear
	walls     watched
	gatewayMu sync.Mutex       // guards gateway and shut
	gateway   *gateway.Gateway // network of the sandbox; nil: not needed so far
	shut      bool             // Close was called
	offline   bool             // the session never gets a network

	writing sync.RWMutex // read lock: a file is being written; write lock: processes are being killed

	// The fields below belong to the current run.
	kernel *kernel.Interpreter // nil: not started, or has ended
	proc   backend.Running
	gone   chan struct{}     // closed when proc has ended
	exit   backend.Exit      // after gone
	out    [2]*stream.Switch // destinations of its stdout and stderr
	lost   bool              // an interpreter has ended, and no result has reported it yet
	known  map[string]artifact.State

	had guard.Had
}

// Close records what was refused last, closes the network and closes the sandbox.
func (r *liveSession) Close(ctx context.Context) error {
	r.walls.close()
	r.gatewayMu.Lock()
	r.shut = true
	w := r.gateway
	r.gatewayMu.Unlock()
	w.CloseSession()
	defer r.share.Release()
	return r.sandbox.Close(ctx)
}

// adopt makes w the session's network, and reports whether the session had none. If the
// session is closed already, it closes w.
func (r *liveSession) adopt(w *gateway.Gateway) bool {
	r.gatewayMu.Lock()
	defer r.gatewayMu.Unlock()
	first := r.gateway == nil
	if r.gateway = w; r.shut && first {
		w.Close()
	}
	return first
}

func (r *liveSession) currentGateway() *gateway.Gateway {
	r.gatewayMu.Lock()
	defer r.gatewayMu.Unlock()
	return r.gateway
}

// ready starts the interpreter if it is not running. lost reports that one has ended
// since the last run and that no result has said so yet.
func (r *liveSession) ready(ctx context.Context, program kernel.Program) (lost bool, err error) {
	if r.kernel != nil {
		select {
		case <-r.gone: // it ended between two runs
			_ = r.forget(ctx) // output between runs belongs to no run
		default:
			return r.lost, nil
		}
	}
	lost = r.lost
	plan, err := kernel.PlanInterpreter(program)
	if err != nil {
		return lost, err
	}
	plan.Stdout, plan.Stderr = r.out[0], r.out[1]
	proc, err := r.sandbox.Start(ctx, plan)
	if err != nil {
		return lost, err
	}
	r.proc, r.gone = proc, make(chan struct{})
	r.kernel = kernel.Attach(proc.Channel(0), r.program.Language)
	gone := r.gone
	go func() {
		exit, err := proc.Wait(context.WithoutCancel(ctx))
		if err != nil {
			exit = backend.Exit{Lost: true}
		}
		r.exit = exit
		close(gone)
	}()
	return lost, nil
}

// forget kills an interpreter and everything that it started. It reads their output to
// the end, so that a later run does not get it. The error says that some of it could not
// be read.
func (r *liveSession) forget(ctx context.Context) (err error) {
	r.clear(ctx)
	if r.proc != nil {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		err = r.proc.Drain(down)
		cancel()
		_ = r.proc.Channel(0).Close()
	}
	r.kernel, r.proc = nil, nil
	r.lost = true
	return err
}

// clear kills every process in the sandbox. It first waits a moment for files that are
// being written.
func (r *liveSession) clear(ctx context.Context) {
	if r.free() {
		defer r.writing.Unlock()
	}
	if err := r.sandbox.Clear(context.WithoutCancel(ctx)); err != nil && r.ended != nil {
		r.ended(err)
	}
}

// free takes the write lock within writingLimit, and reports whether it did. It does not
// wait longer, because a program may have stopped the process that writes a file.
func (r *liveSession) free() bool {
	t, end := time.NewTicker(writingLimit/100), time.NewTimer(writingLimit)
	defer t.Stop()
	defer end.Stop()
	for !r.writing.TryLock() {
		select {
		case <-t.C:
		case <-end.C:
			return false
		}
	}
	return true
}

const (
	writingLimit   = 200 * time.Millisecond // how long clear waits for a file that is being written
	interruptLimit = time.Second            // how long a cell may run on after an interrupt
	endLimit       = 5 * time.Second
)

// cellEnd says how a cell ended.
type cellEnd struct {
	report kernel.Report
	err    error
	mute   bool // its process did not end by itself and was killed
}

// executeCell runs a cell in the session's interpreter.
func (e *Engine) executeCell(x *execution, r *liveSession) (*outcome, error) {
	ctx, o, stop := e.attend(x)
	defer stop()
	before, err := taken(ctx, r.sandbox)
	if err != nil {
		return nil, err
	}

	program := r.program
	if r.kernel == nil {
		program.Preload, program.Loaded = e.interps.Preload(x.req, r.interp)
	}
	lost, err := r.ready(x.ctx, program)
	if err != nil {
		return nil, startError(x.ctx, err)
	}
	x.stateLost = lost
	r.out[0].Turn(o.stdout)
	r.out[1].Turn(o.stderr)
	walls := r.walls.look(ctx, r.sandbox)

	end := e.cell(ctx, x, r)
	o.cause = context.Cause(ctx)
	var unread error
	if end.err == nil {
		unread = r.proc.Flush(context.WithoutCancel(ctx))
	} else if errors.Is(end.err, kernel.ErrUnread) {
		unread = end.err
	}
	o.report = end.report
	o.report.Syntax = nil // the interpreter's own error is the answer
	switch {
	case end.err == nil:
		o.exit = backend.Exit{Code: end.report.Exit}
		o.stopped = o.cause != nil
	case o.cause != nil: // the engine killed the interpreter
		o.stopped = true
		x.stateLost = true
	case end.mute: // it was alive but its channel was unusable
		x.stateLost = true
		o.exit = backend.Exit{Code: 1}
	default:
		x.stateLost = true
		o.exit = r.exit
	}
	o.isolation, err = (<-walls).get(e.cfg.MinTier)
	if end.err != nil || unread != nil {
		unread = errors.Join(unread, r.forget(ctx))
	}
	r.out[0].Turn(nil)
	r.out[1].Turn(nil)
	if unread != nil {
		x.stateLost = true
		return nil, outputLost(unread)
	}
	if end.mute && o.cause == nil {
		o.stderr.Line("The program closed the interpreter's own channel (descriptors 3 and 4) or wrote to it, so the interpreter was ended")
	}
	r.lost = r.lost && !x.answers()
	x.ended = e.cfg.Now()
	used, lack := taken(ctx, r.sandbox)
	if lack != nil {
		return nil, lack
	}
	o.usage = since(before, used)
	if o.report.Results == nil {
		o.report.Results = []sandboxmcp.RichResult{}
	}
	if err == nil && o.exit.Lost && !o.stopped && o.usage.OOMKills == 0 {
		e.sessions.Lost(x.session)
		err = sandboxmcp.Errorf(sandboxmcp.CodeSessionExpired, "the session's sandbox ended under the program").WithHint("create a new session")
	}
	return o, err
}

// answers reports whether the caller still waits for the result.
func (x *execution) answers() bool { return x.ctx.Err() == nil }

// cell has the interpreter run a cell. It returns when the cell is done or the
// interpreter has ended. If ctx ends, it interrupts the cell, and kills the interpreter
// if that does not help.
func (e *Engine) cell(ctx context.Context, x *execution, r *liveSession) cellEnd {
	talk, hush := context.WithCancel(context.WithoutCancel(ctx))
	defer hush()
	done := make(chan cellEnd, 1)
	go func() {
		rep, err := r.kernel.Execute(talk, kernel.Cell{Code: x.req.Code, Display: x.display(), Stdin: x.req.Stdin, Env: x.cellEnv()}, x.shown.Add)
		done <- cellEnd{report: rep, err: err}
	}()
	asked := ctx.Done()
	gone := (<-chan struct{})(r.gone)
	var patience, again <-chan time.Time
	times := 0
	for {
		select {
		case end := <-done:
			if end.err != nil { // the process may not be reaped yet
				end.mute = !e.await(ctx, r)
			}
			return end
		case <-gone: // its last report may still be on the way
			gone = nil
			time.AfterFunc(interruptLimit/10, hush)
		case <-asked:
			asked = nil
			if errors.Is(context.Cause(ctx), errOutput) || e.ctx.Err() != nil {
				hush() // on too much output, or when the server stops, do not wait for an interrupt
				continue
			}
			_ = r.proc.Interrupt(context.WithoutCancel(ctx))
			t, tick := time.NewTimer(interruptLimit), time.NewTicker(interruptLimit/20)
			defer t.Stop()
			defer tick.Stop()
			patience, again = t.C, tick.C
		case <-again:
			times++
			r.remind(context.WithoutCancel(ctx), times)
		case <-patience:
			patience = nil
			hush()
		}
	}
}

// remind repeats an interrupt that may have come too early: just before Python began a
// system call, which any signal that its driver handles interrupts, or while a shell was
// starting a program. It is called every twentieth of interruptLimit.
func (r *liveSession) remind(ctx context.Context, times int) {
	switch {
	case r.program.Language == sandboxmcp.Python:
		_ = r.proc.Signal(ctx, sigURG)
	case r.program.Language == sandboxmcp.Shell && times == 6: // once; Node's driver needs none, and a late one could end the next cell
		_ = r.proc.Interrupt(context.WithoutCancel(ctx))
	}
}

// await waits for the interpreter's process to end. It gives the process a moment to end
// by itself, unless ctx has ended, and then kills it. It reports whether the process
// ended by itself.
func (e *Engine) await(ctx context.Context, r *liveSession) bool {
	t := time.NewTimer(interruptLimit / 2)
	defer t.Stop()
	if ctx.Err() == nil {
		select {
		case <-r.gone:
			return true
		case <-t.C:
		}
	}
	r.clear(ctx)
	t.Reset(endLimit)
	select {
	case <-r.gone:
	case <-t.C:
		e.log.Error("an interpreter does not end")
	}
	return false
}

// display says where the value of a last expression goes. A session returns it as a
// result and never prints it.
func (x *execution) display() sandboxmcp.Display {
	if x.req.Display == sandboxmcp.DisplayStdout {
		return sandboxmcp.DisplayResults
	}
	return x.req.Display
}

// taken returns what a sandbox has used so far, or zero if it was closed meanwhile.
func taken(ctx context.Context, sb backend.Sandbox) (backend.Usage, error) {
	u, err := sb.Usage(context.WithoutCancel(ctx))
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		return u, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "what the program used could not be read").WithCause(err)
	}
	return u, nil
}

// since returns the usage between two calls of taken. Peaks are those of the sandbox's
// whole life.
func since(before, after backend.Usage) backend.Usage {
	after.CPU = max(after.CPU-before.CPU, 0)
	after.OOMKills = max(after.OOMKills-before.OOMKills, 0)
	after.Exceeded = after.Exceeded[min(len(before.Exceeded), len(after.Exceeded)):]
	return after
}

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
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// room is what a session holds: its sandbox, and the interpreter that stays in
// it. One run at a time uses it; files come and go beside the run.
type room struct {
	sandbox backend.Sandbox
	share   *queue.Share   // kernel tasks of the sandbox, until Close
	fresh   bool           // each run has an interpreter of its own
	program kernel.Program // how its interpreter is started
	interp  interpreter    // which it is
	ended   func(error)    // tells of a failed Close
	walls   watched
	ways    sync.Mutex // guards way and shut
	way     *way       // out of the sandbox; nil: none was needed yet
	shut    bool       // the room is closed
	offline bool       // it has none, and never will

	writing sync.RWMutex // held to read while a file is put, to write while processes are ended

	// The run's own, which is one at a time.
	kernel *kernel.Interpreter // nil: not started, or ended
	proc   backend.Running
	gone   chan struct{}     // closed when proc has ended
	exit   backend.Exit      // after gone
	out    [2]*stream.Switch // what its stdout and stderr go to
	lost   bool              // an interpreter has ended, and no answer has said so yet
	known  map[string]artifact.State

	had hadSecrets
}

// Close ends everything in the room.
func (r *room) Close(ctx context.Context) error {
	r.walls.close()
	r.ways.Lock()
	r.shut = true
	w := r.way
	r.ways.Unlock()
	w.closeSession()
	defer r.share.Release()
	return r.sandbox.Close(ctx)
}

// adopt makes a way out the room's, and reports whether it had none. One that comes
// when the room is closed already is closed too.
func (r *room) adopt(w *way) bool {
	r.ways.Lock()
	defer r.ways.Unlock()
	first := r.way == nil
	if r.way = w; r.shut && first {
		w.close()
	}
	return first
}

func (r *room) wayOut() *way {
	r.ways.Lock()
	defer r.ways.Unlock()
	return r.way
}

// ready starts the interpreter when there is none. lost tells that one has ended
// since the last run, of which nobody has heard yet.
func (r *room) ready(ctx context.Context, program kernel.Program) (lost bool, err error) {
	if r.kernel != nil {
		select {
		case <-r.gone: // between two runs
			_ = r.forget(ctx) // lost output belongs to no run
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
	r.kernel = kernel.Attach(proc.Channel(), r.program.Language)
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

// forget ends what is left of an interpreter and of everything that it started.
// What they wrote last goes where their streams go now: a later run is not to
// have it as its own. The error says that some of that output could not be read.
func (r *room) forget(ctx context.Context) (err error) {
	r.clear(ctx)
	if r.proc != nil {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		err = r.proc.Drain(down)
		cancel()
		_ = r.proc.Channel().Close()
	}
	r.kernel, r.proc = nil, nil
	r.lost = true
	return err
}

// clear ends every process in the room, but for one that is writing a file.
func (r *room) clear(ctx context.Context) {
	if r.free() {
		defer r.writing.Unlock()
	}
	if err := r.sandbox.Clear(context.WithoutCancel(ctx)); err != nil && r.ended != nil {
		r.ended(err)
	}
}

// free waits for a file that is being put, and not for long: a program may have
// stopped what writes it.
func (r *room) free() bool {
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
	writingLimit   = 200 * time.Millisecond // that the end of a run waits for a file that is being put
	interruptLimit = time.Second            // that a cell has to end in after it was interrupted
	endLimit       = 5 * time.Second
)

// cellEnd is how a cell ended.
type cellEnd struct {
	report kernel.Report
	err    error
	mute   bool // the interpreter did not end by itself
}

// executeCell runs a cell in the room's interpreter.
func (e *Engine) executeCell(x *execution, r *room) (*outcome, error) {
	ctx, o, stop := e.attend(x)
	defer stop()
	before, err := taken(ctx, r.sandbox)
	if err != nil {
		return nil, err
	}

	program := r.program
	if r.kernel == nil {
		program.Preload, program.Loaded = e.preload(x.req, r.interp)
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
	case o.cause != nil: // we ended it, and its interpreter with it
		o.stopped = true
		x.stateLost = true
	case end.mute: // it lives, and nothing can be heard of it
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

// answers reports whether somebody is there to read the result.
func (x *execution) answers() bool { return x.ctx.Err() == nil }

// cell has the interpreter run a cell and returns when it is done, or when the
// interpreter has ended: by itself, or, when ctx has ended and interrupting it
// did not help, by us.
func (e *Engine) cell(ctx context.Context, x *execution, r *room) cellEnd {
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
			if end.err != nil { // the process may need a moment to be reaped
				end.mute = !e.await(ctx, r)
			}
			return end
		case <-gone: // what it said last may still be on its way
			gone = nil
			time.AfterFunc(interruptLimit/10, hush)
		case <-asked:
			asked = nil
			if errors.Is(context.Cause(ctx), errOutput) || e.ctx.Err() != nil {
				hush() // a flood, or the server's own end, leaves no second to spare
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

// remind repeats an interrupt that may have come a moment too early: before a
// system call that Python then began, which any signal that its driver takes
// wakes from, or while a shell was starting a program. It is called every
// twentieth of the time that a cell has to end in.
func (r *room) remind(ctx context.Context, times int) {
	switch {
	case r.program.Language == sandboxmcp.Python:
		_ = r.proc.Signal(ctx, sigURG)
	case r.program.Language == sandboxmcp.Shell && times == 6: // Node's driver needs none, and a second could end the next cell
		_ = r.proc.Interrupt(context.WithoutCancel(ctx))
	}
}

// await waits for the interpreter's process to end: a moment for it to do so by
// itself, unless ctx has ended and it is to be ended. It reports whether it did.
func (e *Engine) await(ctx context.Context, r *room) bool {
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

// display is where the value of a last expression goes: a session has results,
// and no REPL that prints.
func (x *execution) display() sandboxmcp.Display {
	if x.req.Display == sandboxmcp.DisplayStdout {
		return sandboxmcp.DisplayResults
	}
	return x.req.Display
}

// taken returns what a sandbox has taken so far; nothing of one that was closed
// meanwhile.
func taken(ctx context.Context, sb backend.Sandbox) (backend.Usage, error) {
	u, err := sb.Usage(context.WithoutCancel(ctx))
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		return u, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "what the program took is not known").WithCause(err)
	}
	return u, nil
}

// since is what was taken between two looks. The peaks are of the sandbox's life.
func since(before, after backend.Usage) backend.Usage {
	after.CPU = max(after.CPU-before.CPU, 0)
	after.OOMKills = max(after.OOMKills-before.OOMKills, 0)
	after.Exceeded = after.Exceeded[min(len(before.Exceeded), len(after.Exceeded)):]
	return after
}

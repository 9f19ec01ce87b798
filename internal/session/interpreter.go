package session

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// interpreter is the interpreter of one language in a session. Its output outside of cells of
// its language belongs to no run.
type interpreter struct {
	program kernel.Program
	kernel  *kernel.Interpreter // nil: not started, or has ended
	proc    backend.Running
	gone    <-chan struct{} // closed when proc has ended
	exit    backend.Exit    // valid after gone
	// onGone calls a function in a goroutine of its own when proc has ended, unless stop is called before.
	onGone func(f func()) (stop func() bool)

	out  [2]*stream.Switch // destinations of its stdout and stderr
	lost bool              // it has ended, and no result has reported that yet

	interrupted bool // during its last cell
}

// ended reports whether the interpreter was started and its process has ended.
func (i *interpreter) ended() bool {
	if i.kernel == nil {
		return false
	}
	select {
	case <-i.gone:
		return true
	default:
		return false
	}
}

// Add adds the interpreter of a language, which is started for its first cell.
func (l *Live) Add(p kernel.Program) {
	l.interps[p.Language] = &interpreter{program: p, out: [2]*stream.Switch{stream.NewSwitch(), stream.NewSwitch()}}
}

// Has reports whether the interpreter of a language was added.
func (l *Live) Has(language sandboxmcp.Language) bool { return l.interps[language] != nil }

// Interpreters lists the languages whose interpreter runs, in their usual order. It may be called
// at any time.
func (l *Live) Interpreters() []sandboxmcp.Language {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(sandboxmcp.Languages(), func(language sandboxmcp.Language) bool { return !l.running[language] })
}

func (l *Live) setRunning(language sandboxmcp.Language, running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[language] = running
}

// ready starts an interpreter if it is not running.
func (l *Live) ready(ctx context.Context, i *interpreter, program kernel.Program) error {
	if i.kernel != nil {
		return nil
	}
	plan, err := kernel.PlanInterpreter(program)
	if err != nil {
		return err
	}
	plan.Stdout, plan.Stderr = i.out[0], i.out[1]
	proc, err := l.cfg.Sandbox.Start(ctx, plan)
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	i.proc, i.gone = proc, life.Done()
	i.onGone = func(f func()) func() bool { return context.AfterFunc(life, f) }
	i.kernel = kernel.Attach(proc.Channel(0), program.Language)
	l.setRunning(program.Language, true)
	go func() {
		exit, err := proc.Wait(context.WithoutCancel(ctx))
		if err != nil {
			exit = backend.Exit{Lost: true}
		}
		i.exit = exit
		l.setRunning(program.Language, false)
		end()
	}()
	return nil
}

// forget kills an interpreter and everything that was started in the session, except other
// interpreters and what they have started. It reads its output to the end, so that a later run
// does not get it. The error says that some of it could not be read.
func (l *Live) forget(ctx context.Context, i *interpreter) error {
	l.clear(ctx, l.others(i))
	return l.release(ctx, i)
}

// release gives up an interpreter whose process has ended.
func (l *Live) release(ctx context.Context, i *interpreter) (err error) {
	if i.proc != nil {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		err = i.proc.Drain(down)
		cancel()
		l.part(ctx, i.proc.Channel(0), err)
	}
	i.kernel, i.proc, i.interrupted = nil, nil, false
	i.lost = true
	return err
}

// part closes the channel of an interpreter whose process has ended. A program that another interpreter has started
// can have got a pipe of it, and hold its lock while the kernel reads from the program's memory. No signal ends the
// server's wait for that lock, nor does closing the pipe. If the channel is not closed within flushLimit, or if the
// output has not come to its end, part ends every program of the sandbox.
func (l *Live) part(ctx context.Context, channel io.Closer, drained error) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = channel.Close()
	}()
	t := time.NewTimer(flushLimit)
	defer t.Stop()
	select {
	case <-closed:
		if !errors.Is(drained, context.DeadlineExceeded) {
			return
		}
	case <-t.C:
	}
	if err := l.cfg.Sandbox.Clear(context.WithoutCancel(ctx)); err != nil {
		l.cfg.Logger.Warn("clear session", "session", l.entry.key.id, "error", err)
	}
}

// others returns the processes of all running interpreters but i.
func (l *Live) others(i *interpreter) []backend.Running {
	var all []backend.Running
	for _, other := range l.interps {
		if other != i && other.kernel != nil && !other.ended() {
			all = append(all, other.proc)
		}
	}
	return all
}

// notice gives up the interpreters that have ended by themselves, or with another one. The error
// says that some of their output could not be read.
func (l *Live) notice(ctx context.Context) error {
	var errs []error
	for _, i := range l.interps {
		if i.ended() {
			errs = append(errs, l.forget(ctx, i))
		}
	}
	return errors.Join(errs...)
}

// lose returns the languages whose state was lost and not reported, and whether others kept theirs.
func (l *Live) lose() (lost []sandboxmcp.Language, kept bool) {
	for _, language := range slices.Sorted(maps.Keys(l.interps)) {
		switch i := l.interps[language]; {
		case i.lost:
			lost = append(lost, language)
		case i.kernel != nil:
			kept = true
		}
	}
	return lost, kept
}

// await waits for an interpreter's process to end. It gives the process a moment to end by
// itself, unless ctx has ended, and then kills it. It reports whether the process ended by itself.
func (l *Live) await(ctx context.Context, i *interpreter) bool {
	t := time.NewTimer(interruptLimit / 2)
	defer t.Stop()
	if ctx.Err() == nil {
		select {
		case <-i.gone:
			return true
		case <-t.C:
		}
	}
	l.clear(ctx, l.others(i))
	t.Reset(endLimit)
	select {
	case <-i.gone:
	case <-t.C:
		l.cfg.Logger.Error("an interpreter does not end")
	}
	return false
}

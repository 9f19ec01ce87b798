package session

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// LiveConfig configures a Live.
type LiveConfig struct {
	Sandbox backend.Sandbox // Live closes it
	Program kernel.Program  // how the interpreter is started
	Fresh   bool            // each run starts its own interpreter
	Logger  *slog.Logger
}

// Live is a live session: a sandbox, and the interpreter that stays in it. Execute, Survey,
// Known and Learn belong to the run that has claimed the session, and may not be called
// concurrently. All other methods may be called at any time, also during a run.
type Live struct {
	cfg   LiveConfig
	entry *Session
	walls watched

	writing sync.RWMutex // read lock: a file is being written; write lock: processes are being killed

	// The fields below belong to the current run.
	kernel *kernel.Interpreter // nil: not started, or has ended
	proc   backend.Running
	gone   chan struct{}     // closed when proc has ended
	exit   backend.Exit      // after gone
	out    [2]*stream.Switch // destinations of its stdout and stderr
	lost   bool              // an interpreter has ended, and no result has reported it yet
	known  map[string]artifact.State
}

// NewLive returns what a session that Claim has made holds. The caller hands it to Furnish,
// as a Room or as a part of one.
func NewLive(s *Session, cfg LiveConfig) *Live {
	return &Live{cfg: cfg, entry: s, out: [2]*stream.Switch{stream.NewSwitch(), stream.NewSwitch()}}
}

// Sandbox returns the session's sandbox.
func (l *Live) Sandbox() backend.Sandbox { return l.cfg.Sandbox }

// Fresh reports whether each run starts its own interpreter.
func (l *Live) Fresh() bool { return l.cfg.Fresh }

// Quiesce waits for an observation of the walls that is going on, and prevents new ones.
func (l *Live) Quiesce() { l.walls.close() }

// Close closes the sandbox.
func (l *Live) Close(ctx context.Context) error {
	l.Quiesce()
	return l.cfg.Sandbox.Close(ctx)
}

// Survey notes the files that are in the working directory before a run.
func (l *Live) Survey(ctx context.Context) {
	l.known = artifact.Survey(context.WithoutCancel(ctx), l.cfg.Sandbox.Files(), l.known, artifact.Bounds{})
}

// Known returns the files that Survey and Learn have noted. The caller does not change them.
func (l *Live) Known() map[string]artifact.State { return l.known }

// Learn notes files that were read after a run.
func (l *Live) Learn(states map[string]artifact.State) { maps.Copy(l.known, states) }

// Changed drops the last observation of the walls, because the sandbox was changed.
func (l *Live) Changed() { l.walls.stale() }

// WallsDue reports whether the walls should be observed after a run, by RefreshWalls.
func (l *Live) WallsDue() bool { return !l.cfg.Fresh && l.walls.due(wallsRest) }

// RefreshWalls observes the walls, so that the next run need not wait for it.
func (l *Live) RefreshWalls(ctx context.Context) {
	l.walls.read(context.WithoutCancel(ctx), l.cfg.Sandbox, wallsRest)
}

// Environ returns the environment of the session's interpreter. It has no secrets and no
// variables of single runs.
func (l *Live) Environ() map[string]string {
	plan, err := kernel.PlanInterpreter(l.cfg.Program)
	if err != nil {
		return kernel.Surroundings()
	}
	env := map[string]string{}
	for _, kv := range plan.Env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

// ready starts the interpreter if it is not running. lost reports that one has ended
// since the last run and that no result has said so yet.
func (l *Live) ready(ctx context.Context, program kernel.Program) (lost bool, err error) {
	if l.kernel != nil {
		select {
		case <-l.gone: // it ended between two runs
			_ = l.forget(ctx) // output between runs belongs to no run
		default:
			return l.lost, nil
		}
	}
	lost = l.lost
	plan, err := kernel.PlanInterpreter(program)
	if err != nil {
		return lost, err
	}
	plan.Stdout, plan.Stderr = l.out[0], l.out[1]
	proc, err := l.cfg.Sandbox.Start(ctx, plan)
	if err != nil {
		return lost, err
	}
	l.proc, l.gone = proc, make(chan struct{})
	l.kernel = kernel.Attach(proc.Channel(0), l.cfg.Program.Language)
	gone := l.gone
	go func() {
		exit, err := proc.Wait(context.WithoutCancel(ctx))
		if err != nil {
			exit = backend.Exit{Lost: true}
		}
		l.exit = exit
		close(gone)
	}()
	return lost, nil
}

// forget kills an interpreter and everything that it started. It reads their output to
// the end, so that a later run does not get it. The error says that some of it could not
// be read.
func (l *Live) forget(ctx context.Context) (err error) {
	l.clear(ctx)
	if l.proc != nil {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		err = l.proc.Drain(down)
		cancel()
		_ = l.proc.Channel(0).Close()
	}
	l.kernel, l.proc = nil, nil
	l.lost = true
	return err
}

// clear kills every process in the sandbox. It first waits a moment for files that are
// being written.
func (l *Live) clear(ctx context.Context) {
	if l.free() {
		defer l.writing.Unlock()
	}
	if err := l.cfg.Sandbox.Clear(context.WithoutCancel(ctx)); err != nil {
		l.cfg.Logger.Warn("clear session", "session", l.entry.key.id, "error", err)
	}
}

// free takes the write lock within writingLimit, and reports whether it did. It does not
// wait longer, because a program may have stopped the process that writes a file.
func (l *Live) free() bool {
	t, end := time.NewTicker(writingLimit/100), time.NewTimer(writingLimit)
	defer t.Stop()
	defer end.Stop()
	for !l.writing.TryLock() {
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

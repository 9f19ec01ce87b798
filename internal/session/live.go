package session

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// LiveConfig configures a Live.
type LiveConfig struct {
	Sandbox backend.Sandbox // Live closes it
	Program kernel.Program  // how the interpreter of the session's own language is started
	Fresh   bool            // each run starts its own interpreter
	Copies  *Copies         // for [Files.Copy]; nil: it may not be called
	Logger  *slog.Logger
}

// Live is a live session: a sandbox, and an interpreter for each language that stays in it.
// Execute, Add, Survey, Known and Learn belong to the run that has claimed the session, and may
// not be called concurrently. All other methods may be called at any time, also during a run.
type Live struct {
	cfg   LiveConfig
	entry *Session
	walls watched

	listing chan struct{} // holds an element while files are listed
	writing sync.RWMutex  // read lock: a file is being written; write lock: processes are being killed

	mu      sync.Mutex
	running map[sandboxmcp.Language]bool // languages whose interpreter runs; guarded by mu

	// The fields below belong to the current run.
	interps map[sandboxmcp.Language]*interpreter
	known   map[string]artifact.State
	empty   artifact.Empty
	before  *measured // what the sandbox has used before the run; nil: not known
}

// NewLive returns what a session that Claim has made holds. The caller hands it to Furnish,
// as a Room or as a part of one.
func NewLive(s *Session, cfg LiveConfig) *Live {
	l := &Live{cfg: cfg, entry: s, listing: make(chan struct{}, 1), running: map[sandboxmcp.Language]bool{}, interps: map[sandboxmcp.Language]*interpreter{}, known: map[string]artifact.State{}}
	l.Add(cfg.Program)
	return l
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
	defer l.cfg.Copies.drop(l)
	return l.cfg.Sandbox.Close(ctx)
}

// measured is what a sandbox has used, or why that could not be read.
type measured struct {
	usage backend.Usage
	err   error
}

// Survey notes which files are in the working directory before a run, and what the sandbox has used. A program can keep
// the directory from being listed. Then only the files of earlier runs are known.
func (l *Live) Survey(ctx context.Context) {
	type survey struct {
		known map[string]artifact.State
		empty artifact.Empty
		used  measured
	}
	l.before = nil
	if l.empty.Still(l.cfg.Sandbox.Files()) {
		used := l.measure(ctx)()
		l.known, l.before = map[string]artifact.State{}, &used
		return
	}
	l.empty = artifact.Empty{}
	done, known := make(chan survey, 1), l.known
	ctx = context.WithoutCancel(ctx)
	go func() {
		limited, cancel := context.WithTimeout(ctx, surveyLimit)
		defer cancel()
		used := l.measure(ctx)
		found, empty := artifact.Survey(backend.Blocking(limited), l.cfg.Sandbox.Files(), known, artifact.Bounds{})
		done <- survey{found, empty, used()}
	}()
	t := time.NewTimer(surveyLimit + surveyLimit/10) // a list that is cut short by the limit arrives before
	defer t.Stop()
	select {
	case s := <-done:
		l.known, l.empty, l.before = s.known, s.empty, &s.used
	case <-t.C:
		l.known = maps.Clone(l.known) // the goroutine may still read the map
	}
}

// used returns what the sandbox has used before the run.
func (l *Live) used(ctx context.Context) measured {
	before := l.before
	if l.before = nil; before == nil { // Survey was late
		return l.measure(ctx)()
	}
	return *before
}

// measure reads what the sandbox has used. If the sandbox may be on another machine, it does so in the background, and
// what it returns waits for that.
func (l *Live) measure(ctx context.Context) (used func() measured) {
	read := func() (m measured) {
		m.usage, m.err = run.Usage(ctx, l.cfg.Sandbox)
		return m
	}
	if l.cfg.Fresh {
		return func() measured { return measured{} } // the run reads it itself
	}
	if _, near := l.cfg.Sandbox.(backend.Near); near {
		m := read()
		return func() measured { return m }
	}
	c := make(chan measured, 1)
	go func() { c <- read() }()
	return func() measured { return <-c }
}

// Known returns the files that Survey and Learn have noted. The caller does not change them.
func (l *Live) Known() map[string]artifact.State { return l.known }

// Empty is the working directory, if Survey found no visible entry in it.
func (l *Live) Empty() artifact.Empty { return l.empty }

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

// clear kills the processes in the sandbox, except those of keep and what they have started, if
// the backend can tell them apart. It first waits a moment for files that are being written.
func (l *Live) clear(ctx context.Context, keep []backend.Running) {
	if l.free() {
		defer l.writing.Unlock()
	}
	if p, ok := l.cfg.Sandbox.(backend.Pruner); ok && len(keep) > 0 {
		err := p.Prune(context.WithoutCancel(ctx), keep...)
		if err == nil {
			return
		}
		l.cfg.Logger.Debug("every interpreter of a session is ended", "session", l.entry.key.id, "error", err)
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
	surveyLimit    = 2 * time.Second        // how long listing the files before a run may take. Later ones count as made by the run
	flushLimit     = 2 * time.Second        // how long the output of a cell that is done may take to read
	endLimit       = 5 * time.Second
)

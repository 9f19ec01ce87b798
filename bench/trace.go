//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// marks holds the times of the events of one run, by name. The first event of a name
// counts, except for names that are set again.
type marks struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (m *marks) set(name string, again bool) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.at[name]; again || !there {
		m.at[name] = now
	}
}

func (m *marks) reset() map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.at
	m.at = map[string]time.Time{}
	return old
}

// now returns the time and records which part of the engine has called it.
func (m *marks) now() time.Time {
	var pc [1]uintptr
	if runtime.Callers(2, pc[:]) == 1 {
		f, _ := runtime.CallersFrames(pc[:]).Next()
		name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		if strings.HasPrefix(name, "audit.") {
			name = "audit"
			m.set("now outcome", true) // each call sets it again, so the last one, that of the outcome, remains
		}
		m.set("now "+name, false)
	}
	return time.Now()
}

// The wrappers record when the engine calls the backend and when the call returns.
type tracedBackend struct {
	backend.Backend

	m *marks
}

func (b tracedBackend) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	b.m.set("open<", false)
	sb, err := b.Backend.Open(ctx, spec)
	b.m.set("open>", false)
	if err != nil {
		return nil, err
	}
	return tracedSandbox{sb, b.m}, nil
}

type tracedSandbox struct {
	backend.Sandbox

	m *marks
}

func (s tracedSandbox) Start(ctx context.Context, p backend.Process) (backend.Running, error) {
	s.m.set("start<", false)
	r, err := s.Sandbox.Start(ctx, p)
	s.m.set("start>", false)
	if err != nil {
		return nil, err
	}
	return tracedRunning{r, s.m}, nil
}

func (s tracedSandbox) Kill(ctx context.Context) error {
	s.m.set("kill<", false)
	defer s.m.set("kill>", false)
	return s.Sandbox.Kill(ctx)
}

func (s tracedSandbox) Isolation(ctx context.Context) (sandboxmcp.Isolation, error) {
	s.m.set("walls<", false)
	defer s.m.set("walls>", false)
	return s.Sandbox.Isolation(ctx)
}

func (s tracedSandbox) Files() backend.Files {
	s.m.set("files<", false)
	return tracedFiles{s.Sandbox.Files(), s.m}
}

type tracedFiles struct {
	backend.Files

	m *marks
}

func (f tracedFiles) List(ctx context.Context, name string, limit int) ([]backend.FileInfo, bool, error) {
	defer f.m.set("list>", true)
	return f.Files.List(ctx, name, limit)
}

type tracedRunning struct {
	backend.Running

	m *marks
}

func (r tracedRunning) Wait(ctx context.Context) (backend.Exit, error) {
	defer r.m.set("wait>", false)
	return r.Running.Wait(ctx)
}

func (r tracedRunning) Drain(ctx context.Context) error {
	defer r.m.set("drain>", false)
	return r.Running.Drain(ctx)
}

// phases are the parts of a run, each from one mark to another. A part without its marks is
// left out.
var phases = []struct{ name, from, to string }{
	{"validate, enter", "call", "now engine.(*Engine).begin"},
	{"validate, enter, queue", "call", "now engine.(*Engine).run"},
	{"find interpreter, record the intent", "now engine.(*Engine).run", "open<"},
	{"  the writer has the intent after", "now engine.(*Engine).run", "now audit"},
	{"open sandbox", "open<", "open>"},
	{"plan the program", "open>", "start<"},
	{"start", "start<", "start>"},
	{"run", "start>", "wait>"},
	{"  beside it: read the walls", "walls<", "walls>"},
	{"wait for the walls", "wait>", "kill<"},
	{"kill", "kill<", "kill>"},
	{"drain", "kill>", "drain>"},
	{"report, usage, result", "drain>", "files<"},
	{"collect", "files<", "list>"},
	{"sign, prepare the record", "list>", "now outcome"},
	{"write the record", "now outcome", "return"},
	{"whole", "call", "return"},
}

// tracePhases runs small programs one after the other and prints the time of each phase.
func tracePhases(ctx context.Context, o options, out io.Writer) error {
	state, err := os.MkdirTemp("", "smbench.")
	if err != nil {
		return fmt.Errorf("make scratch directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(state) }()
	m := &marks{at: map[string]time.Time{}}
	env := set(withoutOurs(os.Environ()), "PATH", o.path)
	e, err := engine.New(ctx, engine.Config{
		StateDir: state, Now: m.now, Actor: "bench",
		Backends: []backend.Backend{tracedBackend{process.New(process.Config{NoPool: true, SearchPath: o.path, ShimEnv: env}), m}},
	})
	if err != nil {
		return fmt.Errorf("open engine: %w", err)
	}
	defer shut(e)
	lang, err := sandboxmcp.ParseLanguage(o.lang)
	if err != nil {
		return err
	}
	req := sandboxmcp.Request{Language: lang, Code: interpreter{Lang: lang}.hello()}
	took := make([][]float64, len(phases))
	for n := range o.trace + 3 {
		pause(ctx, o.pause)
		m.reset()
		m.set("call", false)
		if _, err := execute(ctx, e, req); err != nil {
			return err
		}
		m.set("return", false)
		at := m.reset()
		if n < 3 {
			continue // the first runs start the backend and fill caches, so they are not counted
		}
		for i, p := range phases {
			from, a := at[p.from]
			to, b := at[p.to]
			if a && b {
				took[i] = append(took[i], milliseconds(to.Sub(from)))
			}
		}
	}
	return printPhases(out, took)
}

func printPhases(out io.Writer, took [][]float64) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp50 ms\tp90 ms\tp99 ms\tn\t")
	for i, p := range phases {
		if len(took[i]) > 0 {
			fmt.Fprintf(w, "%-36s\t%.3f\t%.3f\t%.3f\t%d\t\n", p.name, quantile(took[i], 0.5), quantile(took[i], 0.9), quantile(took[i], 0.99), len(took[i]))
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print phases: %w", err)
	}
	return nil
}

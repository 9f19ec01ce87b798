//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// pandasCode prints 1: the sum is asked for, and found.
const pandasCode = "import pandas, numpy\nprint(int(pandas.DataFrame({'a': numpy.ones(1000)}).a.sum() == 1000))"

const (
	rowPandas        = "bare, pandas"
	rowPandasFresh   = "in process, pandas"
	rowPandasPooled  = "in process, ready sandbox, pandas"
	rowPandasDemand  = "in process, none of its shape ready, pandas"
	rowPandasSession = "in process, a session's run, pandas"
	rowPandasBwrap   = "bwrap, pandas"
	rowPandasJudge   = "go-judge, HTTP, pandas"
)

// science is the package set of that name, and engines whose programs see it.
type science struct {
	skip          string // why there is none
	set           environment.Set
	fresh, pooled *engine.Engine
}

// setUpScience lets the program install the set, once for all runs; what is there
// is only checked. It says why not.
func setUpScience(ctx context.Context, o options, search string) error {
	ctx, stop := context.WithTimeout(ctx, 3*time.Minute)
	defer stop()
	if err := os.MkdirAll(o.science, 0o700); err != nil {
		return fmt.Errorf("make directory of the package set: %w", err)
	}
	cmd := exec.CommandContext(ctx, o.bin, "setup", "science")
	cmd.Env = set(set(withoutOurs(os.Environ()), "SANDBOXMCP_STATE_DIR", o.science), "PATH", search)
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("the package set could not be installed: %w%s", err, stderrOf(err))
	}
	return nil
}

// giveScience copies the set into a state directory that is another user's: a set
// counts only if its directory is the server's own.
func giveScience(ctx context.Context, from, to string, uid int) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return fmt.Errorf("make directory of the package set: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", environment.Dir(from), to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the package set: %w: %.200s", err, out)
	}
	owner := strconv.Itoa(uid) + ":" + strconv.Itoa(uid)
	if out, err := exec.CommandContext(ctx, "chown", "-R", owner, to).CombinedOutput(); err != nil {
		return fmt.Errorf("give the package set: %w: %.200s", err, out)
	}
	return nil
}

// openScience opens the engines.
func (b *bed) openScience(ctx context.Context) science {
	if b.o.science == "" {
		return science{skip: b.o.noScience}
	}
	s, err := b.findScience(ctx)
	if err != nil {
		return science{skip: err.Error()}
	}
	return s
}

func (b *bed) findScience(ctx context.Context) (s science, err error) {
	if len(b.interpreters) == 0 || b.interpreters[0].Lang != sandboxmcp.Python {
		return s, errors.New("there is no Python")
	}
	i := b.interpreters[0]
	library := environment.New(environment.Config{Dir: environment.Dir(b.o.science)})
	sets := library.Active(environment.Python{Path: i.Path, Version: i.Version})
	if len(sets) == 0 {
		return s, errors.New("there is no package set for " + i.Path)
	}
	s.set = sets[0]
	open := func(settings ...string) *engine.Engine {
		if err != nil {
			return nil
		}
		var e *engine.Engine
		if e, err = openEngine(ctx, b.o.science, i.Search, b.env, settings...); err == nil {
			b.closers = append(b.closers, e.Close)
		}
		return e
	}
	s.fresh, s.pooled = open(nothingPrepared), open()
	return s, err
}

// packages is where programs find them.
func (s science) packages() string { return filepath.Join(s.set.Dir, "site-packages") }

// ownSession is an id that no earlier process had: the state directory is kept.
func ownSession(name string) sandboxmcp.SessionID {
	return sandboxmcp.SessionID("bench-" + name + "-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().Unix(), 36))
}

// env is the environment of programs that see the set without us: with the
// variables that our sandboxes set, too.
func (s science) env() []string {
	env := []string{"PYTHONPATH=" + s.packages()}
	vars := environment.Variables()
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, k+"="+vars[k])
	}
	return env
}

// bare runs it without a sandbox.
func (s science) bare(i interpreter) program {
	return program{env: append(plainEnv(), s.env()...), argv: []string{i.Path, "-c", pandasCode}}
}

// modes are its rows. They are slow, so that they have fewer rounds.
func (s science) modes(b *bed, i interpreter) []mode {
	if s.skip != "" {
		var out []mode
		for _, name := range []string{rowPandas, rowPandasFresh, rowPandasPooled, rowPandasDemand, rowPandasSession, rowPandasBwrap, rowPandasJudge} {
			out = append(out, mode{rows: []string{name}, skip: s.skip})
		}
		return out
	}
	command := func(name, base string, p program) mode {
		return b.one(name, base, func(ctx context.Context) (time.Duration, error) { return b.command(ctx, p) })
	}
	with := func(name string, e *engine.Engine, session sandboxmcp.SessionID) mode {
		return b.one(name, rowPandas, func(ctx context.Context) (time.Duration, error) {
			return execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: pandasCode, SessionID: session})
		})
	}
	bwrap := mode{rows: []string{rowPandasBwrap}}
	if p, skip := bwrapProgram(i); skip != "" {
		bwrap.skip = skip
	} else {
		at := len(p.argv) - len(i.argv())
		p.env = append(p.env, s.env()...)
		p.argv = slices.Concat(p.argv[:at], []string{"--ro-bind", s.packages(), s.packages(), i.Path, "-c", pandasCode})
		bwrap = command(rowPandasBwrap, rowPandas, p)
	}
	judge := mode{rows: []string{rowPandasJudge}, skip: b.judge.skip}
	if judge.skip == "" {
		judge = b.one(rowPandasJudge, rowPandas, func(ctx context.Context) (time.Duration, error) { return b.judge.execute(ctx, i, pandasCode) })
	}
	out := []mode{
		command(rowPandas, "", s.bare(i)), with(rowPandasFresh, s.fresh, ""), with(rowPandasPooled, s.pooled, ""),
		b.one(rowPandasDemand, rowPandas, onDemand(s.pooled, i, pandasCode)), with(rowPandasSession, s.pooled, ownSession("pandas")), bwrap, judge,
	}
	for k := range out {
		out[k].every = 3
	}
	return out
}

// scienceVersions tells what is in the set.
func (s science) versions() string {
	var out []string
	for _, p := range s.set.Packages() {
		if strings.HasPrefix(p, "pandas==") || strings.HasPrefix(p, "numpy==") {
			out = append(out, strings.Replace(p, "==", " ", 1))
		}
	}
	return strings.Join(out, ", ")
}

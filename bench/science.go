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

// pandasCode uses pandas and prints 1 if the result is right.
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

// science is the package set "science" and engines whose programs can import it.
type science struct {
	skip          string // why it cannot be measured; empty: it can
	set           environment.Set
	fresh, pooled *engine.Engine
}

// setUpScience installs the package set with the product, once for all runs. If it is
// installed, it is only checked.
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

// giveScience copies the package set into a state directory of another user, because a
// server accepts only sets that its own user owns.
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

// packages returns the directory of the packages.
func (s science) packages() string { return filepath.Join(s.set.Dir, "site-packages") }

// ownSession returns a session id that no earlier process has used, because the state
// directory is kept.
func ownSession(name string) sandboxmcp.SessionID {
	return sandboxmcp.SessionID("bench-" + name + "-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().Unix(), 36))
}

// env returns the environment of programs that use the set without a sandbox, with the
// variables that sandboxes would set.
func (s science) env() []string {
	env := []string{"PYTHONPATH=" + s.packages()}
	vars := environment.Variables()
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, k+"="+vars[k])
	}
	return env
}

// bare returns the program without a sandbox.
func (s science) bare(i interpreter) program {
	return program{env: append(plainEnv(), s.env()...), argv: []string{i.Path, "-c", pandasCode}}
}

// modes returns the rows of the package set. They are slow and run in fewer rounds.
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

// versions returns the versions of the packages.
func (s science) versions() string {
	var out []string
	for _, p := range s.set.Packages() {
		if strings.HasPrefix(p, "pandas==") || strings.HasPrefix(p, "numpy==") {
			out = append(out, strings.Replace(p, "==", " ", 1))
		}
	}
	return strings.Join(out, ", ")
}

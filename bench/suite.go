//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/runtimes"
	"github.com/sandboxmcp/sandboxmcp/internal/tuning"
)

// suite is everything that was measured as one user.
type suite struct {
	User         string
	Isolation    sandboxmcp.Isolation
	Rounds       int
	Interpreters []interpreter
	Rows         []row
	Facts        []row // derived from other rows in each round; in ms, without a base
	ServerP50    float64
	RSS          *serverMemory
	Burst        *burst
	Leak         *leak
	Cells        []cell
	CPUHow       string // how the CPU time of cells was counted
	Science      string // what is in the package set
	NoScience    string // why there is no package set
	Idle         []idle
	Drained      *drained
	Leftovers    *leftovers
	Failed       []string // parts that could not be measured, with the reason
}

// interpreter is a program that runs code, bare and in the product's sandboxes.
type interpreter struct {
	Lang    sandboxmcp.Language
	Label   string // used in the names of rows
	Path    string
	Version string
	Search  string // a PATH on which the product finds it
	Dirs    []string
}

// hello is a program that prints 1.
func (i interpreter) hello() string {
	switch i.Lang {
	case sandboxmcp.Node:
		return "console.log(1)"
	case sandboxmcp.Shell:
		return "echo 1"
	case sandboxmcp.Python:
	}
	return "print(1)"
}

// argv returns the command that runs the program bare.
func (i interpreter) argv() []string {
	flag := "-c"
	if i.Lang == sandboxmcp.Node {
		flag = "-e"
	}
	return []string{i.Path, flag, i.hello()}
}

func (i interpreter) bare() string {
	argv := i.argv()
	return "bare " + i.Label + " " + argv[1]
}

// mode is one way to run a small program. It fills one or more rows.
type mode struct {
	rows []string
	base string // row that the first row is compared with; the other rows are differences and are not compared
	skip string // why it cannot be measured here; empty: it can
	run  func(ctx context.Context) ([]float64, error)

	every int // run only in every n-th round; 0: in each
}

// measureSuite is the task of a suite's child process.
func measureSuite(ctx context.Context, o options) error {
	tuning.Server() // the engines of these rows are measured as a server would run them
	s := suite{Rounds: o.rounds}
	b, err := newBed(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	s.Interpreters = b.interpreters
	s.Isolation = b.isolation
	modes := b.modes(ctx)
	all, order := b.rounds(ctx, modes)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, name := range order {
		s.Rows = append(s.Rows, summarize(all[name], all))
	}
	s.Facts = facts(all, b.interpreters)
	s.ServerP50 = b.serverP50()
	s.Science, s.NoScience, s.CPUHow = b.science.versions(), b.science.skip, b.meter.how()
	b.quiet()
	if o.load {
		progress("operations per second")
		s.Cells = b.throughput(ctx)
	}
	b.close() // the other measurements need a quiet machine
	b.rest(ctx, &s)
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.WriteFile(o.suite, data, 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return ctx.Err()
}

// rest measures everything that is not measured in rounds.
func (b *bed) rest(ctx context.Context, s *suite) {
	part := func(wanted bool, name string, measure func() error) {
		if !wanted || ctx.Err() != nil {
			return
		}
		fmt.Fprintf(os.Stderr, "  %s\n", name)
		if err := measure(); err != nil {
			s.Failed = append(s.Failed, name+": "+err.Error())
		}
	}
	part(b.o.burst, "64 requests at once", func() (err error) { s.Burst, err = b.burst(ctx); return err })
	part(b.o.ready, "more requests than ready sandboxes", func() (err error) { s.Drained, err = b.drained(ctx); return err })
	part(b.o.idle, "memory of sessions", func() (err error) { s.Idle, err = b.idles(ctx); return err })
	part(b.o.sparse > 0, "calls after a long rest", func() error {
		rows, err := b.sparse(ctx)
		s.Rows = append(s.Rows, rows...)
		return err
	})
	part(b.o.rss, "the server's memory", func() (err error) { s.RSS, err = b.memory(ctx); return err })
	part(b.o.leak, "what a server holds after 200 and 2000 runs", func() (err error) { s.Leak, err = b.leak(ctx); return err })
	part(b.o.long, "what very many runs leave", func() (err error) { s.Leftovers, err = b.leftovers(ctx); return err })
}

// rounds runs every mode once per round, in random order.
func (b *bed) rounds(ctx context.Context, modes []mode) (all map[string]*series, order []string) {
	all = map[string]*series{}
	failures := map[int]int{}
	for i, m := range modes {
		for k, name := range m.rows {
			s := &series{name: name, reason: m.skip}
			if k == 0 {
				s.base = m.base
			}
			all[name] = s
			order = append(order, name)
		}
		// Warm-up rounds: files are cached and databases are made.
		for range 2 {
			if modes[i].skip != "" {
				break
			}
			if _, err := m.run(ctx); err != nil {
				modes[i].skip = err.Error()
				all[m.rows[0]].reason = modes[i].skip
			}
		}
	}
	for round := range b.o.rounds {
		if ctx.Err() != nil {
			return all, order
		}
		if round%10 == 0 {
			fmt.Fprintf(os.Stderr, "  round %d of %d\n", round+1, b.o.rounds)
		}
		for _, i := range shuffled(len(modes)) {
			m := modes[i]
			var ms []float64
			var err error
			if m.skip == "" && ctx.Err() == nil && m.due(round) {
				pause(ctx, b.o.pause)
				ms, err = m.run(ctx)
			}
			if err != nil {
				failures[i]++
				all[m.rows[0]].reason = fmt.Sprintf("%d of %d failed: %v", failures[i], b.o.rounds, err)
			}
			for k, name := range m.rows {
				v := math.NaN()
				if k < len(ms) && err == nil {
					v = ms[k]
				}
				all[name].ms = append(all[name].ms, v)
			}
		}
	}
	return all, order
}

// due reports whether a mode runs in a round.
func (m mode) due(round int) bool { return m.every < 2 || round%m.every == 0 }

// quiet ends processes that the loads do not need and that would use CPU time.
func (b *bed) quiet() {
	if err := b.endDocker(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: close:", err)
	}
}

// facts computes rows that are differences or ratios of two rows in each round.
func facts(all map[string]*series, interpreters []interpreter) []row {
	var out []row
	for _, d := range []struct{ name, a, b string }{
		{factCLI, rowCLI, rowBareFile},
		{factStdio, rowServe, "in process, python, display stdout"},
	} {
		a, b := all[d.a], all[d.b]
		if a == nil || b == nil {
			continue
		}
		s := &series{name: d.name, ms: pairwise(a.ms, b.ms, func(x, y float64) float64 { return x - y })}
		out = append(out, summarize(s, nil))
	}
	for _, p := range comparisons(interpreters) {
		a, b := all[p[0]], all[p[1]]
		if a == nil || b == nil {
			continue
		}
		s := &series{name: over(p[0], p[1]), base: b.name, ms: a.ms}
		if r := summarize(s, all); r.Ratio > 0 {
			out = append(out, r)
		}
	}
	return out
}

// comparisons returns pairs of rows whose ratio is printed in addition to that to a bare
// program.
func comparisons(interpreters []interpreter) [][2]string {
	var out [][2]string
	for n, i := range interpreters {
		out = append(out, [2]string{inProcess(i), inBwrap(i)})
		if i.Lang != sandboxmcp.Python {
			continue
		}
		out = append(out, [2]string{inPooled(i), inBwrap(i)})
		if n == 0 {
			out = append(out, [2]string{inPooled(i), inJudge(i)}, [2]string{rowDockerExec, inPooled(i)}, [2]string{rowDockerRun, inPooled(i)},
				[2]string{rowRunscRun, inPooled(i)}, [2]string{rowRunscExec, inPooled(i)}, [2]string{rowSrt, inPooled(i)})
		}
	}
	return append(out, [2]string{rowPandasPooled, rowPandasJudge}, [2]string{rowPandasPooled, rowPandasBwrap})
}

func over(a, b string) string { return a + " over " + b }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// findInterpreters returns the interpreters that the product would use, and the system's
// Python if that is another one.
func findInterpreters(ctx context.Context, search string, env []string) []interpreter {
	var out []interpreter
	add := func(search, label string, lang sandboxmcp.Language) {
		set := runtimes.New(runtimes.Config{Path: search, HomeEnv: env})
		in, err := set.Find(ctx, lang)
		if err != nil {
			return
		}
		for _, known := range out {
			if known.Path == in.Path {
				return
			}
		}
		version := in.Version
		for _, r := range set.List(ctx) {
			if r.Language == lang {
				version = r.Version
			}
		}
		out = append(out, interpreter{Lang: lang, Label: label, Path: in.Path, Version: version, Search: search, Dirs: in.ReadOnlyDirs})
	}
	add(search, "python", sandboxmcp.Python)
	if _, err := os.Stat("/usr/bin/python3"); !errors.Is(err, fs.ErrNotExist) {
		add("/usr/bin", "/usr/bin/python3", sandboxmcp.Python)
	}
	add(search, "node", sandboxmcp.Node)
	add(search, "bash", sandboxmcp.Shell)
	return out
}

// withoutOurs returns env without settings of the product.
func withoutOurs(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(strings.ToUpper(kv), "SANDBOX") {
			out = append(out, kv)
		}
	}
	return out
}

// set returns env with a variable set, in place of all others of that name.
func set(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, name+"=") {
			out = append(out, kv)
		}
	}
	return append(out, name+"="+value)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// dir makes a new directory for this suite.
func (b *bed) dir(name string) (string, error) {
	b.made++
	dir := filepath.Join(b.o.state, name+"-"+strconv.Itoa(b.made))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make scratch directory: %w", err)
	}
	return dir, nil
}

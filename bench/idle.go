//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

const (
	idleMany   = 20              // number of sessions
	idleLarge  = 4               // number of sessions if each is large
	idleFirst  = 2               // runs before the sessions, which prepare what all runs share
	idleForked = 8               // runs after the sessions
	hashing    = 6 * time.Second // time in which a package set is hashed in the background
)

// Labels of rows that are not named after a language alone.
const (
	idleEmpty  = "an empty sandbox"
	idlePandas = "python, pandas in use"
)

// footprint is the memory of processes in bytes. PSS counts a page that n processes share
// as 1/n for each of them. Private counts pages that only one process has.
type footprint struct {
	PSS, Private int64
	Kernel       int64 // memory that the kernel charges to the sandboxes' cgroups, such as page tables; -1: unknown
	Unreadable   int   // processes that could not be read
}

// idle is the memory of sessions that have run one program and wait for the next.
type idle struct {
	Label string
	One   footprint // memory of the first session, including the interpreter that the others share
	Many  footprint // memory of all sessions, relative to the state before the first
	Kept  footprint // what stays after the first session was closed: ready sandboxes, and the interpreter that sessions are forked from
	N     int
	Bare  int64 // mean PSS of such a process without a sandbox; 0: not measured
	Forks []int // private pages of each fork that waits for a program
	Ready int   // number of ready, empty sandboxes of the engine, whose memory is included
}

func (b *bed) idles(ctx context.Context) ([]idle, error) {
	var all []idle
	for _, i := range b.interpreters {
		if i.Search != b.o.path {
			continue
		}
		dir, err := b.dir("idle")
		if err != nil {
			return nil, err
		}
		r, err := ask[idle](ctx, b, "idle", "-state", dir, "-lang", string(i.Lang))
		if err != nil {
			return all, fmt.Errorf("%s: %w", i.Label, err)
		}
		r.Label = i.Label
		all = append(all, *r)
	}
	dir, err := b.dir("idle")
	if err != nil {
		return all, err
	}
	empty, err := ask[idle](ctx, b, "idle", "-state", dir, "-lang", idleEmpty)
	if err != nil {
		return all, fmt.Errorf("%s: %w", idleEmpty, err)
	}
	all = append(all, *empty)
	if b.o.science == "" {
		return all, nil
	}
	r, err := ask[idle](ctx, b, "idle", "-state", b.o.science, "-lang", string(sandboxmcp.Python), "-pandas")
	if err != nil {
		return all, fmt.Errorf("pandas: %w", err)
	}
	return append(all, *r), nil
}

// idleOnce runs in a child process and measures its own sessions.
func idleOnce(ctx context.Context, o options, out io.Writer) error {
	if o.lang == idleEmpty {
		r := idle{Label: idleEmpty, N: idleMany}
		var err error
		if r.One, r.Many, err = emptyMemory(ctx, r.N, o.state); err != nil {
			return err
		}
		return encode(out, r)
	}
	e, err := openEngine(ctx, o.state, o.path, os.Environ(), "SANDBOX_MAX_SESSIONS="+strconv.Itoa(idleMany))
	if err != nil {
		return err
	}
	defer shut(e)
	i := interpreter{Lang: sandboxmcp.Language(o.lang)}
	r := idle{Label: o.lang, N: idleMany}
	code := i.hello()
	if o.pandas {
		r.Label, r.N, code = idlePandas, idleLarge, pandasCode
		if r.Bare, err = barePandas(ctx, o); err != nil {
			return err
		}
	}
	for range idleFirst {
		if _, err = execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: code}); err != nil {
			return err
		}
	}
	if o.pandas {
		pause(ctx, hashing)
	}
	before := footprintOf(ctx)
	first := ownSession("idle")
	if _, err = execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: code, SessionID: first}); err != nil {
		return err
	}
	r.One = footprintOf(ctx).less(before)
	if err = e.TerminateSession(ctx, sandboxmcp.Caller{Namespace: e.Namespace(), Actor: "bench"}, first); err != nil {
		return err
	}
	r.Kept = footprintOf(ctx).less(before)
	for n := range r.N {
		if err = idleSession(ctx, e, i, code, n); err != nil {
			return err
		}
	}
	r.Many, r.Ready = footprintOf(ctx).less(before), sandboxesReady(ctx, e)
	sessions := descendants(os.Getpid())
	for range idleForked { // after some runs, the engine makes forks ahead
		if _, err = execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: code}); err != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
	r.Forks = waitingForks(sessions)
	return encode(out, r)
}

func encode(out io.Writer, v any) error {
	if err := json.NewEncoder(out).Encode(v); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

// barePandas returns the mean PSS of as many processes as there are sessions. They have
// used pandas and wait, without a sandbox.
func barePandas(ctx context.Context, o options) (int64, error) {
	found := findInterpreters(ctx, o.path, os.Environ())
	if len(found) == 0 || found[0].Lang != sandboxmcp.Python {
		return 0, errors.New("there is no Python")
	}
	i := found[0]
	sets := environment.New(environment.Config{Dir: environment.Dir(o.state)}).Active(environment.Python{Path: i.Path, Version: i.Version})
	if len(sets) == 0 {
		return 0, errors.New("there is no package set for " + i.Path)
	}
	s := science{set: sets[0]}
	before := footprintOf(ctx)
	for range idleLarge {
		cmd := exec.CommandContext(ctx, i.Path, "-c", pandasCode+"\nprint(flush=True)\ninput()")
		cmd.Env = append(plainEnv(), s.env()...)
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, fmt.Errorf("make pipe: %w", err)
		}
		lines, err := cmd.StdoutPipe()
		if err != nil {
			return 0, fmt.Errorf("make pipe: %w", err)
		}
		if err := cmd.Start(); err != nil {
			return 0, fmt.Errorf("start: %w", err)
		}
		defer func() { _ = in.Close(); _ = cmd.Wait() }()
		if _, err := lines.Read(make([]byte, 1)); err != nil {
			return 0, fmt.Errorf("pandas without a sandbox: %w", err)
		}
	}
	return footprintOf(ctx).less(before).PSS / idleLarge, nil
}

func idleSession(ctx context.Context, e *engine.Engine, i interpreter, code string, n int) error {
	_, err := execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: code, SessionID: ownSession("idle-" + strconv.Itoa(n))})
	return err
}

// waitingForks returns the private pages of the Python processes that wait in ready sandboxes,
// without those of sessions. A fork is in a pid namespace below that of its interpreter.
func waitingForks(sessions []int) []int {
	own := len(strings.Fields(lineOf("/proc/self/status", "NSpid", ":")))
	var out []int
	for _, p := range descendants(os.Getpid()) {
		dir := "/proc/" + strconv.Itoa(p)
		name, _ := os.ReadFile(dir + "/comm")
		depth := len(strings.Fields(lineOf(dir+"/status", "NSpid", ":")))
		if !strings.HasPrefix(string(name), "python") || depth < own+2 || slices.Contains(sessions, p) {
			continue
		}
		if f, err := memoryOf(p); err == nil && f.Private > 0 {
			out = append(out, int(f.Private)/os.Getpagesize())
		}
	}
	return out
}

// forkPages returns the median of the private pages of waiting forks; NaN: not measured.
func (s *suite) forkPages() float64 {
	var pages []float64
	for _, i := range s.Idle {
		for _, n := range i.Forks {
			if i.Label == string(sandboxmcp.Python) { // not one that has imported packages
				pages = append(pages, float64(n))
			}
		}
	}
	return quantile(pages, 0.5)
}

// footprintOf returns the memory of all processes below this one, once it is stable.
func footprintOf(ctx context.Context) footprint {
	pause(ctx, 500*time.Millisecond)
	f := footprint{Kernel: kernelMemory(os.Getpid())}
	for _, p := range descendants(os.Getpid()) {
		one, err := memoryOf(p)
		if err != nil {
			f.Unreadable++
			continue
		}
		f.PSS, f.Private = f.PSS+one.PSS, f.Private+one.Private
	}
	return f
}

// memoryOf returns the memory of a process, without the kernel's.
func memoryOf(pid int) (f footprint, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "Pss":
			f.PSS += kib << 10
		case "Private_Clean", "Private_Dirty", "Private_Hugetlb":
			f.Private += kib << 10
		}
	}
	return f, nil
}

func (f footprint) less(before footprint) footprint {
	out := footprint{PSS: f.PSS - before.PSS, Private: f.Private - before.Private, Kernel: -1, Unreadable: f.Unreadable}
	if f.Kernel >= 0 && before.Kernel >= 0 {
		out.Kernel = f.Kernel - before.Kernel
	}
	return out
}

// per returns an n-th of the footprint.
func (f footprint) per(n int) footprint {
	out := footprint{PSS: f.PSS / int64(n), Private: f.Private / int64(n), Kernel: -1}
	if f.Kernel >= 0 {
		out.Kernel = f.Kernel / int64(n)
	}
	return out
}

// kernelMemory returns the kernel memory that is charged to the cgroups of a process's
// sandboxes; -1: no cgroup counts it.
func kernelMemory(pid int) int64 {
	mark := "sandboxmcp-" + strconv.Itoa(pid) + "-"
	sum, told := int64(0), false
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // one that has just gone
		}
		if !strings.HasPrefix(d.Name(), mark) {
			return nil
		}
		// The value includes the cgroups below.
		if data, err := os.ReadFile(filepath.Join(path, "memory.kmem.usage_in_bytes")); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			sum, told = sum+n, true
		} else if v := lineOf(filepath.Join(path, "memory.stat"), "kernel", " "); v != "" {
			n, _ := strconv.ParseInt(v, 10, 64)
			sum, told = sum+n, true
		}
		return fs.SkipDir
	})
	if !told {
		return -1
	}
	return sum
}

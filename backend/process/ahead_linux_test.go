package process_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// aheadable returns a process that may be started ahead. The variable WAITED tells it that
// it was.
func aheadable(program string) (backend.Process, *bytes.Buffer) {
	p, out := forkable(program)
	p.Prestart = &backend.Prestart{
		Env: append(p.Env, "WAITED=1"), Begin: []byte("x"),
		Program: []backend.ProgramFile{{Name: "boot.py", Data: []byte("import os\nif not os.read(4, 1): os._exit(0)\nos.close(3); os.close(4); del os\n" + forkScript)}},
	}
	return p, out
}

// expectant waits until a process waits in every ready sandbox of b.
func expectant(t *testing.T, b backend.Backend, sp backend.Spec) {
	t.Helper()
	if !testkit.Within(t, time.Minute, func() bool {
		for range 2 {
			p, _ := aheadable("pass")
			begun(t, b, sp, p, nil)
		}
		until(t, b, "some", func(n int) bool { return n > 0 })
		if testkit.Within(t, 50*time.Millisecond, func() bool {
			n := pool(b)
			return n["slots_ready"] == n["processes_ahead"] && n["slots_ready"] > 0
		}) {
			return true
		}
		_ = b.(backend.Pooler).Trim(t.Context())
		return false
	}) {
		t.Fatalf("pool: got %v within 10 s, want a process in every ready sandbox", pool(b))
	}
}

const waited = "\nprint('waited', 'WAITED' in os.environ)"

// TestAheadIsAsStarted compares a process that waited with one that was started for its
// request, line by line, as it sees itself and as the kernel shows it.
func TestAheadIsAsStarted(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(change...)(t)
			defer func() { _ = b.Close(t.Context()) }()
			p, want := aheadable(self + waited)
			wantExit, _, wantIso := begun(t, b, spec("started"), p, nil)
			sp := spec("ahead")
			expectant(t, b, sp)
			p, got := aheadable(self + waited)
			gotExit, _, gotIso := begun(t, b, sp, p, nil)
			if !strings.Contains(want.String(), "waited False") || !strings.Contains(got.String(), "waited True") {
				t.Fatalf("got %.2000s\nand %.2000s\nwant the first started for the request and the second started ahead", want, got)
			}
			same := strings.NewReplacer("waited True", "waited False")
			if diff := cmp.Diff(strings.Split(want.String(), "\n"), strings.Split(same.Replace(got.String()), "\n")); diff != "" {
				t.Errorf("a process that waited differs (-started +waited):\n%s", diff)
			}
			if diff := cmp.Diff([]any{wantExit, wantIso}, []any{gotExit, gotIso}); diff != "" {
				t.Errorf("exit and isolation (-started +waited):\n%s", diff)
			}
		})
	}
}

// TestAheadThatDoesNotListen: a process that waits but does not read what it is sent is
// ended, and the program is started as usual. The message is longer than a pipe's buffer, so
// writing it would block for ever.
func TestAheadThatDoesNotListen(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	deaf := func() (backend.Process, *bytes.Buffer) {
		p, out := aheadable("import os\nprint('runs')" + waited)
		p.Prestart.Program[0].Data = []byte("import time\ntime.sleep(600)\n")
		p.Prestart.Begin = bytes.Repeat([]byte("x"), 1<<20)
		return p, out
	}
	sp, had := spec("deaf"), 0
	if !testkit.Within(t, time.Minute, func() bool {
		all := testkit.Within(t, 100*time.Millisecond, func() bool {
			n := pool(b)
			return n["processes_ahead"] > 0 && n["processes_ahead"] == n["slots_ready"]
		})
		p, out := deaf()
		if exit, _, _ := begun(t, b, sp, p, nil); exit != (backend.Exit{}) || out.String() != "runs\nwaited False\n" {
			t.Fatalf("got exit %+v and output %q, want a program that was started as usual", exit, out)
		}
		if all {
			had++
		}
		return had == 2
	}) {
		t.Errorf("programs with a process that waited: got %d within 20 s, want 2; pool %v", had, pool(b))
	}
}

// TestAheadGivesWay: a program that the waiting process cannot become is started alone, and
// nothing of the waiting process is left.
func TestAheadGivesWay(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("way")
	const alone = "import os, sys; print(sorted(p for p in os.listdir('/proc') if p.isdigit()) == [str(os.getpid())], os.getppid(), sorted(os.listdir('/run/program')), sys.stdin.read())" + waited
	clear := func(sb backend.Sandbox) {
		if err := sb.Clear(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*backend.Process)
		before func(backend.Sandbox)
		want   string
	}{
		"It":        {nil, nil, "True 1 ['boot.py', 'main.py'] \nwaited True\n"},
		"Another":   {func(p *backend.Process) { p.Prestart = nil }, nil, "True 1 ['boot.py', 'main.py'] \nwaited False\n"},
		"Arguments": {func(p *backend.Process) { p.Argv = append(p.Argv, "more") }, nil, "True 1 ['boot.py', 'main.py'] \nwaited False\n"},
		"Variables": {func(p *backend.Process) { p.Prestart.Env = p.Prestart.Env[1:] }, nil, "True 1 ['boot.py', 'main.py'] \nwaited False\n"},
		"Files":     {func(p *backend.Process) { p.Prestart.Program[0].Data = []byte("pass") }, nil, "True 1 ['boot.py', 'main.py'] \nwaited False\n"},
		"Input":     {func(p *backend.Process) { p.Stdin = []byte("in") }, nil, "True 1 ['boot.py', 'main.py'] in\nwaited False\n"},
		"Renamed": {func(p *backend.Process) {
			p.Prestart, p.Argv[2], p.Program[0].Name = nil, backend.ProgramDir+"/begin.py", "begin.py"
		}, nil, "True 1 ['begin.py', 'main.py'] \nwaited False\n"},
		"Cleared": {nil, clear, "True 1 ['boot.py', 'main.py'] \nwaited False\n"},
	} {
		t.Run(name, func(t *testing.T) {
			expectant(t, b, sp)
			p, out := aheadable(alone)
			if c.change != nil {
				c.change(&p)
			}
			e, _, _ := begun(t, b, sp, p, c.before)
			if out.String() != c.want || e.Code != 0 {
				t.Errorf("got %q, %+v, want %q", out, e, c.want)
			}
		})
	}
}

package process_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// forkScript runs the file that is named as its argument, under that name.
const forkScript = `
def boot():
    import sys
    sys.argv = sys.argv[1:]
    path = sys.argv[0]
    with open(path) as f: text = f.read()
    del main["boot"]
    exec(compile(text, path, "exec"), main)
type(boot)(boot.__code__, {"__builtins__": __builtins__, "main": globals()})()
`

// forkable is a program that may be forked.
func forkable(program string) (backend.Process, *bytes.Buffer) {
	var out bytes.Buffer
	env := []string{"LANG=C.UTF-8", "PATH=/usr/bin:/bin"}
	return backend.Process{
		Argv: []string{python(), "-S", backend.ProgramDir + "/boot.py", backend.ProgramDir + "/main.py"}, Env: env, Stdout: &out, Stderr: &out,
		Program: []backend.ProgramFile{{Name: "boot.py", Data: []byte(forkScript)}, {Name: "main.py", Data: []byte(program)}},
		Prestart: &backend.Prestart{
			Argv: []string{python(), "-S", backend.ProgramDir + "/boot.py", "any"}, Env: env,
			Program: []backend.ProgramFile{{Name: "boot.py", Data: testkit.ForkServer(forkScript)}},
			Fork:    &backend.Fork{Options: 2},
		},
	}, &out
}

// ran runs a program and tells what it printed, how it ended and what stood around it.
func ran(t *testing.T, b backend.Backend, sp backend.Spec, program string) (string, backend.Exit, backend.Usage, any) {
	t.Helper()
	p, out := forkable(program)
	e, u, iso := begun(t, b, sp, p, nil)
	return out.String(), e, u, iso
}

// begun runs a process in a sandbox of its own, in which before, unless it is nil,
// did something, and tells how it ended, what it took and what stood around it.
func begun(t *testing.T, b backend.Backend, sp backend.Spec, p backend.Process, before func(backend.Sandbox)) (backend.Exit, backend.Usage, any) {
	t.Helper()
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if before != nil {
		before(sb)
	}
	r, err := sb.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u := usage(t, sb)
	if err := sb.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, u, iso
}

// hatched runs programs until the zygote of b waits and its ready sandboxes have forks in
// them.
func hatched(t *testing.T, b backend.Backend, sp backend.Spec) {
	t.Helper()
	for range 2 {
		ran(t, b, sp, "pass")
	}
	for i := 0; pool(b)["zygotes"] != 1; i++ {
		if i == 10 {
			t.Fatalf("no zygote: %v", pool(b))
		}
		ran(t, b, sp, "import time; time.sleep(.1)")
	}
}

// TestForkIsAsExecuted compares a fork with an executed program, line by line.
func TestForkIsAsExecuted(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(change...)(t)
			defer func() { _ = b.Close(t.Context()) }()
			// a fork is the third process of its sandbox, and has a smaller table of descriptors and the filter of its zygote, too
			same := strings.NewReplacer("FDSize:\t128", "FDSize:\t64", "Seccomp_filters:\t2", "Seccomp_filters:\t3", "sees ['2']", "sees ['3']", "[] 2 True", "[] 3 True")
			want, wantExit, _, wantIso := ran(t, b, spec("executed"), self)
			hatched(t, b, spec("warm"))
			got, gotExit, _, gotIso := ran(t, b, spec("forked"), self)
			if !strings.Contains(want, "sees ['2']") || !strings.Contains(got, "sees ['3']") {
				t.Fatal("got the programs started in other ways, want the first executed and the second forked")
			}
			want = same.Replace(want)
			got = same.Replace(got)
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("a fork is another than an executed program (-executed +forked):\n%s", diff)
			}
			if diff := cmp.Diff([]any{wantExit, wantIso}, []any{gotExit, gotIso}); diff != "" {
				t.Errorf("exit and isolation (-executed +forked):\n%s", diff)
			}
			if !slices.Contains(strings.Split(got, "\n"), "/proc/self/status NoNewPrivs:\t1") {
				t.Fatalf("nothing was looked at: %.300s", got)
			}
		})
	}
}

// forking has every program of Python that the suite runs forked, but for those
// that it looks for by their arguments, which a fork does not show outside.
type forking struct {
	*process.Backend

	t     testing.TB
	forks int
}

func (b *forking) Open(ctx context.Context, sp backend.Spec) (backend.Sandbox, error) {
	sb, err := b.Backend.Open(ctx, sp)
	if err != nil {
		return nil, err
	}
	return &forkingSandbox{sb, b}, nil
}

type forkingSandbox struct {
	backend.Sandbox

	b *forking
}

func (s *forkingSandbox) Network(ctx context.Context, ports []int) (*backend.Network, error) {
	return s.Sandbox.(backend.Networker).Network(ctx, ports)
}

func (s *forkingSandbox) Refuse(ctx context.Context) (*backend.Network, error) {
	return s.Sandbox.(backend.Networker).Refuse(ctx)
}

func (s *forkingSandbox) BeforeSockets(f func()) bool {
	return s.Sandbox.(backend.Networker).BeforeSockets(f)
}

func (s *forkingSandbox) Start(ctx context.Context, p backend.Process) (backend.Running, error) {
	if len(p.Argv) == 2 && p.Argv[0] == python() && p.Argv[1] == backend.ProgramDir+"/main.py" && p.Stdin == nil {
		q, _ := forkable("")
		p.Program = append([]backend.ProgramFile{q.Program[0]}, p.Program...)
		p.Argv, p.Prestart = append([]string{python(), "-S", q.Argv[2]}, p.Argv[1:]...), q.Prestart
		s.b.hatch(ctx)
	}
	return s.Sandbox.Start(ctx, p)
}

// hatch sees to it that a zygote waits.
func (b *forking) hatch(ctx context.Context) {
	for range 200 {
		if b.Pool()["zygotes"] == 1 {
			return
		}
		sb, err := b.Backend.Open(ctx, spec("hatch"))
		if err != nil {
			return
		}
		p, _ := forkable("pass")
		if r, err := sb.Start(ctx, p); err == nil {
			_, _ = r.Wait(ctx)
		}
		_ = sb.Close(context.WithoutCancel(ctx))
	}
	b.t.Error("no zygote comes")
}

func (b *forking) Close(ctx context.Context) error {
	b.forks += b.Forks()
	return b.Backend.Close(context.WithoutCancel(ctx))
}

// TestConformanceForked runs laws and attacks by forks.
func TestConformanceForked(t *testing.T) {
	o := options(t)
	all := 0
	for name, change := range map[string][]func(*process.Config){"Usual": {process.ForkAgain}, "WithoutCgroup": {process.ForkAgain, process.WithoutCgroup}} {
		if testing.Short() && name != "Usual" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			o := o
			if name != "Usual" {
				o.Tier, o.HeldLimits = sandboxmcp.TierL2, false
			}
			var made []*forking
			o.New = func(t testing.TB) backend.Backend {
				t.Helper()
				b := &forking{Backend: newBackend(change...)(t).(*process.Backend), t: t}
				made = append(made, b)
				return b
			}
			backendtest.Run(t, o)
			for _, b := range made {
				all += b.forks
			}
		})
	}
	// If -test.run selects a single law, that law may start no forked interpreter.
	if some := strings.Contains(flag.Lookup("test.run").Value.String(), "/"); all < 50 && !some {
		t.Errorf("forks: got %d, want at least 50, or the test shows nothing", all)
	}
	t.Logf("%d forks", all)
}

// inNamespace lists the processes of the machine in a pid namespace.
func inNamespace(link string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, p := range all {
		if l, err := os.Readlink(p); err == nil && l == link {
			pids = append(pids, p)
		}
	}
	return pids
}

// TestForksAreReached: signals, Clear, Kill and the end of their jail reach forks and all that
// they have started.
func TestForksAreReached(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(change...)(t)
			defer func() { _ = b.Close(t.Context()) }()
			hatched(t, b, spec("warm"))
			up := func(program string) (backend.Sandbox, backend.Running, string) {
				t.Helper()
				forks := b.(*process.Backend).Forks()
				sb, err := b.Open(t.Context(), spec("reached"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = sb.Close(context.WithoutCancel(t.Context())) })
				p, _ := forkable(program)
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				p.Stdout = w
				run, err := sb.Start(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				line, _ := bufio.NewReader(r).ReadString('\n')
				_ = r.Close()
				if got := b.(*process.Backend).Forks(); got < 1 || got < forks || pool(b)["zygotes"] != 1 {
					t.Fatal("got no further fork, want the program forked")
				}
				return sb, run, strings.TrimSpace(line)
			}
			all := func(link string, want bool) {
				t.Helper()
				if got := inNamespace(link); want && len(got) < 6 || !want && len(got) > 0 {
					t.Errorf("in %s are %v", link, got)
				}
			}
			sb, _, link := up(testkit.Hostile(t, "outlives-its-run.py"))
			all(link, true)
			if err := sb.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			all(link, false)

			sb, run, link := up(testkit.Hostile(t, "outlives-its-run.py"))
			all(link, true)
			if err := sb.Clear(t.Context()); err != nil {
				t.Error(err)
			}
			if got := inNamespace(link); len(got) != 1 { // init
				t.Errorf("after Clear there are %v", got)
			}
			if e, err := run.Wait(t.Context()); err != nil || e.Signal != 9 {
				t.Errorf("Wait after Clear: got %+v, %v; want signal 9", e, err)
			}
			var out bytes.Buffer
			again, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "echo again"}, Stdout: &out})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := again.Wait(t.Context()); err != nil || sb.Kill(t.Context()) != nil || again.Drain(t.Context()) != nil || out.String() != "again\n" {
				t.Errorf("a program after Clear: got %q, %v; want again", out.String(), err)
			}

			_, run, _ = up("print('up', flush=True)\nimport time\ntime.sleep(60)")
			if err := run.Signal(t.Context(), 15); err != nil {
				t.Error(err)
			}
			if e, err := run.Wait(t.Context()); err != nil || e.Signal != 15 {
				t.Errorf("Wait after a signal: got %+v, %v; want signal 15", e, err)
			}

			_, run, link = up(testkit.Hostile(t, "outlives-its-run.py"))
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
			all(link, false)
			if e, err := run.Wait(t.Context()); err != nil || !e.Lost {
				t.Errorf("Wait after Close of the backend: got %+v, %v; want it lost", e, err)
			}
		})
	}
}

// TestForkGivesWay: a program that cannot be forked is executed alone in a sandbox where a
// fork waits, also if that fork was killed meanwhile.
func TestForkGivesWay(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("way")
	hatched(t, b, sp)
	const alone = "import os; print(sorted(p for p in os.listdir('/proc') if p.isdigit()) == [str(os.getpid())], os.getppid())"
	for _, how := range []string{"waits", "cleared"} {
		ran(t, b, sp, "pass") // the ready ones after it hold forks
		until(t, b, "2", func(n int) bool { return n == 2 })
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		if how == "cleared" {
			if err := sb.Clear(t.Context()); err != nil {
				t.Error(err)
			}
		}
		p, out := forkable(alone)
		p.Prestart = nil
		r, err := sb.Start(t.Context(), p)
		if err != nil {
			t.Fatalf("%s: got %v, want nil", how, err)
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = sb.Kill(t.Context())
		_ = r.Drain(t.Context())
		_ = sb.Close(t.Context())
		if out.String() != "True 1\n" {
			t.Errorf("%s: got %q", how, out.String())
		}
	}
}

// TestZygoteIsKilled: after the zygote is killed from outside, programs are executed, and
// later forked again.
func TestZygoteIsKilled(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("killed")
	hatched(t, b, sp)
	for _, pid := range b.(*process.Backend).Zygotes() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		if out, e, _, _ := ran(t, b, sp, "print('up')"); out != "up\n" || e.Code != 0 {
			t.Errorf("program %d after the zygote was killed: %q, %+v", i, out, e)
		}
	}
}

// TestForksKeepNothing: the zygote, and so every other fork, has neither a caller's variables
// nor its program. Nothing is left after all is given back.
func TestForksKeepNothing(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("secret")
	hatched(t, b, sp)
	before := backendtest.CountBeside(t, b)
	hatched(t, b, sp)
	const secret = "tenant-one-secret"
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	p, out := forkable("import os\nprint(os.environ['TOKEN'])\n#" + secret)
	p.Env = append(slices.Clone(p.Env), "TOKEN="+secret)
	p.Argv = append(p.Argv, secret)
	r, err := sb.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = sb.Kill(t.Context())
	_ = r.Drain(t.Context())
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if out.String() != secret+"\n" {
		t.Fatalf("got %q", out.String())
	}
	search := testkit.Hostile(t, "searches-memory.py")
	for range 3 { // the needle itself may be found in the searcher's own memory once
		got, _, _, _ := ran(t, b, sp, search)
		plain := strings.TrimSpace(got)
		if !strings.HasPrefix(plain, "True False ") {
			t.Errorf("got %q", got)
		}
		clean, _, _, _ := ran(t, b, sp, strings.ReplaceAll(search, "tenant-one-", "tenant-two-"))
		if clean != got {
			t.Errorf("of the other tenant's secret a fork finds %q, of one that never was %q", got, clean)
		}
	}
	before.Same(t)
}

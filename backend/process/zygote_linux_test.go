package process_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// bounded is a backend with such bounds for forks.
func bounded(t *testing.T, forks int, age, rest time.Duration, refused int, change ...func(*process.Config)) *process.Backend {
	t.Helper()
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend(change...)(t).(*process.Backend)
	process.BoundForks(b, forks, age, rest, refused)
	t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
	return b
}

// TestZygoteIsMadeAnew: a zygote is replaced after a number of forks, and at an age.
func TestZygoteIsMadeAnew(t *testing.T) {
	for name, c := range map[string]struct {
		forks int
		age   time.Duration
		pause string
	}{"forks": {4, time.Hour, ".02"}, "age": {1000, 200 * time.Millisecond, ".1"}} {
		t.Run(name, func(t *testing.T) {
			b := bounded(t, c.forks, c.age, time.Hour, 3)
			sp := spec("anew")
			seen, gone := map[int]bool{}, map[int]bool{}
			for i := 0; i < 200 && len(seen) < 3; i++ {
				if out, e, _, _ := ran(t, b, sp, fmt.Sprintf("import time; time.sleep(%s); print(%d)", c.pause, i)); out != fmt.Sprintln(i) || e.Code != 0 {
					t.Fatalf("program %d: got %q, %+v; want its number", i, out, e)
				}
				all := b.Zygotes()
				if len(all) > 1 {
					t.Errorf("got %d zygotes at once, want 1", len(all))
				}
				for pid := range seen {
					gone[pid] = gone[pid] || !slices.Contains(all, pid)
				}
				for _, pid := range all {
					seen[pid] = true
				}
				if n := b.Forks(); n > c.forks+3 { // and those that ready sandboxes and the trial take
					t.Errorf("forks of one zygote: got %d, want at most %d", n, c.forks+3)
				}
			}
			if len(seen) < 3 {
				t.Fatalf("got %d zygotes in 200 runs, want 3", len(seen))
			}
			for pid := range gone {
				testkit.Until(t, "an old zygote has ended", func() bool { return !gone[pid] || !lives(pid) })
			}
		})
	}
}

// TestOldForkIsNotUsed: a fork that waits in a ready sandbox is dropped once its zygote has
// reached its age. The program is executed instead.
func TestOldForkIsNotUsed(t *testing.T) {
	const age = 2 * time.Second
	b := bounded(t, 1000, age, time.Hour, 3)
	sp := spec("old")
	hatched(t, b, sp)
	ran(t, b, sp, "pass")
	until(t, b, "2", func(n int) bool { return n == 2 })
	const which = "import os; print(os.getpid(), len([p for p in os.listdir('/proc') if p.isdigit()]))"
	if out, _, _, _ := ran(t, b, sp, which); out != "3 1\n" {
		t.Skipf("this machine is too slow for it: %q", out)
	}
	time.Sleep(age) // the fork must be older than its zygote may become
	if out, _, _, _ := ran(t, b, sp, which); out != "4 1\n" {
		t.Errorf("got %q, want an executed program beside a fork that has ended", out)
	}
}

// TestPoolWhileForking: Pool may be called while zygotes start and end. A race would show
// under the race detector or as a wrong answer.
func TestPoolWhileForking(t *testing.T) {
	b := bounded(t, 1, time.Hour, 0, 3)
	stop := make(chan struct{})
	var asking, running sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					pool(b)
				}
			}
		})
		running.Go(func() {
			for range 25 {
				if out, _, _, _ := ran(t, b, spec("asked"), "print('up')"); out != "up\n" {
					t.Errorf("got %q", out)
				}
			}
		})
	}
	running.Wait()
	close(stop)
	asking.Wait()
}

// TestZygoteGoes: a zygote that is not used for the idle time ends, and leaves nothing.
func TestZygoteGoes(t *testing.T) {
	b := bounded(t, 1000, time.Hour, time.Hour, 3, func(c *process.Config) { c.PoolIdle = 500 * time.Millisecond })
	sp := spec("idle")
	came := func() {
		t.Helper()
		hatched(t, b, sp)
		testkit.Until(t, "no zygote and no ready sandbox", func() bool { return len(b.Zygotes()) == 0 && ready(b) == 0 })
	}
	came()
	before := backendtest.CountBeside(t, b)
	came()
	before.Same(t)
	if out, _, _, _ := ran(t, b, sp, "print('up')"); out != "up\n" {
		t.Errorf("got %q", out)
	}
}

// TestZygoteThatRefuses: a zygote that refuses to fork is given up, and the programs that it
// refused are executed.
func TestZygoteThatRefuses(t *testing.T) {
	const refused = 3
	b := bounded(t, 1000, time.Hour, time.Hour, refused)
	sp := spec("refused")
	hatched(t, b, sp)
	for _, pid := range b.Zygotes() { // it has no room for what a fork is asked with
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 5, Max: 256}, nil); err != nil {
			t.Fatal(err)
		}
	}
	pid := b.Zygotes()[0]
	for i := range 12 {
		if out, e, _, _ := ran(t, b, sp, fmt.Sprintf("print(%d)", i)); out != fmt.Sprintln(i) || e.Code != 0 {
			t.Errorf("program %d: got %q, %+v; want its number", i, out, e)
		}
	}
	if n := len(b.Zygotes()); n != 0 || lives(pid) {
		t.Errorf("after more than %d refusals there are %d zygotes; it lives: %v", refused, n, lives(pid))
	}
}

// TestZygoteDiesUnderLoad kills zygotes at any moment of their lives: every
// program gives its right answer, and nothing is left.
func TestZygoteDiesUnderLoad(t *testing.T) {
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		if testing.Short() && name != "Usual" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := bounded(t, 1000, time.Hour, 0, 3, change...)
			sp := spec("load")
			hatched(t, b, sp)
			stop, killed := make(chan struct{}), 0
			var killer, workers sync.WaitGroup
			killer.Go(func() {
				for i := range 2000 {
					select {
					case <-stop:
						return
					default:
					}
					time.Sleep(time.Duration(i*1373%8000) * time.Microsecond) // each round kills at another moment
					for _, pid := range b.Zygotes() {
						if pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
							killed++
						}
					}
				}
			})
			for w := range 3 {
				workers.Go(func() {
					for i := range 40 {
						sb, err := b.Open(t.Context(), sp)
						if err != nil {
							t.Error(err)
							return
						}
						p, out := forkable(fmt.Sprintf("print('answer', %d)", w*1000+i))
						r, err := sb.Start(t.Context(), p)
						if err != nil {
							t.Error(err)
						} else {
							e, err := r.Wait(t.Context())
							_ = sb.Kill(t.Context())
							_ = r.Drain(t.Context())
							if want := fmt.Sprintf("answer %d\n", w*1000+i); err != nil || e.Code != 0 || e.Signal != 0 || out.String() != want {
								t.Errorf("got %q, %+v, %v; want %q", out.String(), e, err, want)
							}
						}
						if err := sb.Close(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			workers.Wait()
			close(stop)
			killer.Wait()
			if killed < 5 {
				t.Errorf("%d zygotes were killed: that shows nothing", killed)
			}
			t.Logf("%d zygotes were killed", killed)
			self := os.Getpid()
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if left := below(self); len(left) > 0 {
				t.Errorf("processes left: got %v, want none", left)
			}
		})
	}
}

// TestTenantsOfOneZygote: two programs that are forked from one interpreter do not reach each other.
func TestTenantsOfOneZygote(t *testing.T) {
	b := bounded(t, 1000, time.Hour, time.Hour, 3)
	sp := spec("tenant")
	hatched(t, b, sp)
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	p, _ := forkable(testkit.Hostile(t, "can-be-reached.py"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	p.Stdout = w
	run, err := sb.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	first, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	out, e, _, _ := ran(t, b, sp, testkit.Hostile(t, "reaches-others.py"))
	second, rest, _ := strings.Cut(out, "\n")
	if first != second+"\n" {
		t.Fatalf("%q and %q are not forks of one zygote", first, second)
	}
	if e.Code != 0 || rest != "[1]\n" { // init, which a signal of nobody inside reaches
		t.Errorf("of another tenant, and of the zygote, it found %q", rest)
	}
	if err := run.Signal(t.Context(), 0); err != nil {
		t.Error("the other program: got it ended, want it alive")
	}
	_ = sb.Kill(t.Context())
}

// TestForkIsPinnedAsInit: without control groups, all programs of a sandbox share
// the processors that it may use, forked or not.
func TestForkIsPinnedAsInit(t *testing.T) {
	var have unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		t.Fatal(err)
	}
	testkit.Need(t, "processors", have.Count() > 1, "one processor: nothing is pinned")
	b := bounded(t, 1000, time.Hour, time.Hour, 3, process.WithoutCgroup)
	sp := spec("pinned")
	sp.CPUCores = 1
	hatched(t, b, sp)
	const which = "import os; print(*os.sched_getaffinity(0), flush=True)"
	for range 6 {
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		var got [2]string
		for i := range got {
			p, out := forkable(which)
			r, err := sb.Start(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			got[i] = out.String()
		}
		_ = sb.Close(t.Context())
		if got[0] != got[1] || len(got[0]) < 2 {
			t.Errorf("a fork runs on %q and an executed program beside it on %q", got[0], got[1])
		}
	}
}

// TestForkIsTooLarge: what does not fit is refused as for an executed program,
// and the fork that waited for it goes.
func TestForkIsTooLarge(t *testing.T) {
	b := bounded(t, 1000, time.Hour, time.Hour, 3)
	sp := spec("large")
	hatched(t, b, sp)
	before := backendtest.CountBeside(t, b) // with a jail, and no zygote any more
	hatched(t, b, sp)
	for range 10 {
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := forkable("print('never')")
		p.Env = append(slices.Clone(p.Env), "X="+strings.Repeat("x", 210<<10))
		if _, err := sb.Start(t.Context(), p); err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("got %v", err)
		}
		var out bytes.Buffer
		r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "echo next"}, Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		_ = sb.Kill(t.Context())
		_ = r.Drain(t.Context())
		if err := sb.Close(t.Context()); err != nil || out.String() != "next\n" {
			t.Errorf("the next program: got %q, %v; want next", out.String(), err)
		}
	}
	ran(t, b, sp, "pass")
	before.Same(t)
}

package process_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func ready(b backend.Backend) int { return pool(b)["slots_ready"] }

// until waits for a number of ready sandboxes.
func until(t *testing.T, b backend.Backend, what string, ok func(n int) bool) {
	t.Helper()
	if !testkit.Within(t, time.Minute, func() bool { return ok(ready(b)) }) {
		t.Fatalf("%d sandboxes are ready after a minute, want %s", ready(b), what)
	}
}

// readied is a backend that has ready sandboxes of the shape of spec, and how many.
func readied(t *testing.T, b backend.Backend, sp backend.Spec) int {
	t.Helper()
	for range 2 {
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	until(t, b, "2: one at once, and one more", func(n int) bool { return n == 2 })
	return 2
}

func openClosed(t *testing.T, b backend.Backend, sp backend.Spec) {
	t.Helper()
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReadyByUse: a kind of sandbox is kept ready from its second request on. A ready one is
// given only to requests of its kind, and replaced.
func TestReadyByUse(t *testing.T) {
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	openClosed(t, b, spec("once"))
	if n := ready(b); n != 0 {
		t.Errorf("%d are ready after one use, want 0", n)
	}
	openClosed(t, b, spec("twice"))
	until(t, b, "2", func(n int) bool { return n == 2 })
	kinds := map[string]func(*backend.Spec){
		"a limit of cpu time": func(s *backend.Spec) { s.CPUTime = time.Minute }, "inodes": func(s *backend.Spec) { s.WorkInodes++ },
		"directories": func(s *backend.Spec) { s.Trees = backend.Trees(t.TempDir()) },
	}
	if grouped(t, b) {
		kinds["temp"] = func(s *backend.Spec) { s.TempBytes /= 2 }
	} else {
		kinds["cores"], kinds["tasks"] = func(s *backend.Spec) { s.CPUCores = 0.5 }, func(s *backend.Spec) { s.MaxTasks = 513 }
		kinds["memory"] = func(s *backend.Spec) { s.MemoryBytes = 4<<30 + 1 }
	}
	for name, change := range kinds {
		sp := spec("other")
		change(&sp)
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		if n := ready(b); n != 2 {
			t.Errorf("%d are ready when one of another %s was opened, want 2", n, name)
		}
		_ = sb.Close(t.Context())
	}
	sb, err := b.Open(t.Context(), spec("third"))
	if err != nil {
		t.Fatal(err)
	}
	if n := ready(b); n != 1 {
		t.Errorf("%d are ready after one was taken, want 1", n)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	until(t, b, "2 again", func(n int) bool { return n == 2 })
}

// TestEagerIsReadyAfterOneUse: with Eager a kind of sandbox is kept ready from its first request on, so that
// a client that asks rarely has one for its second.
func TestEagerIsReadyAfterOneUse(t *testing.T) {
	b := newBackend(func(c *process.Config) { c.Eager = true })(t)
	defer func() { _ = b.Close(t.Context()) }()
	openClosed(t, b, spec("once"))
	until(t, b, "1 at least", func(n int) bool { return n > 0 })
}

// self prints all that the kernel tells a program of itself and of its places,
// and nothing that differs from one start to the next.
const self = `
import os, re
def show(name, drop=()):
    for line in open(name).read().splitlines():
        if not line.startswith(drop): print(name, line)
show('/proc/self/status', ('Pid:', 'Tgid:', 'NSpid:', 'NStgid:', 'NSpgid:', 'NSsid:', 'Vm', 'Rss', 'voluntary', 'nonvoluntary', 'Ngid', 'Cpus_allowed'))
for n in 'limits', 'cgroup', 'oom_score_adj', 'setgroups', 'loginuid', 'timerslack_ns', 'personality':
    try: show('/proc/self/' + n)
    except OSError as e: print(n, e.errno)
for line in open('/proc/self/mountinfo'):
    f = line.split()
    print('mount', f[3:6], re.sub(r'uid=\d+|gid=\d+', '', ' '.join(f[6:])))
for n in sorted(os.listdir('/proc/self/ns')):
    print('namespace of its own', n, len(os.readlink('/proc/self/ns/' + n)) > 0)
print('sees', [p for p in os.listdir('/proc') if p.isdigit()])
print('ids', os.getresuid(), os.getresgid(), os.getgroups(), os.getpid(), os.getsid(0) == os.getpid(), os.umask(0o22))
print('map', open('/proc/self/uid_map').read().split()[0::2], open('/proc/self/gid_map').read().split()[0::2])
print('descriptors', [(f, os.readlink('/proc/self/fd/' + f).split(':')[0]) for f in sorted(os.listdir('/proc/self/fd')) if f in '012'])
for d in '/mnt/data', '/tmp', '/dev/shm', '/run', '/run/program', '/':
    s = os.statvfs(d)
    print('place', d, sorted(os.listdir(d)), oct(os.stat(d).st_mode), os.stat(d).st_uid, s.f_blocks, s.f_files)
print('host', os.uname().nodename)
def errno(f):
    try: f(); return 0
    except OSError as e: return e.errno
print('kill 1', errno(lambda: os.kill(1, 9)), 'write', errno(lambda: open('/etc/x', 'w')), errno(lambda: open('/run/program/x', 'w')), errno(lambda: open('/proc/self/oom_score_adj', 'w').write('0')))
`

// TestReadyIsAsFresh compares a ready sandbox with one that was built for its
// request, as a program in it and as the backend see them.
func TestReadyIsAsFresh(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(change...)(t)
			defer func() { _ = b.Close(t.Context()) }()
			want, wantIso := seen(t, b, spec("seen"), 0)
			readied(t, b, spec("warm"))
			got, gotIso := seen(t, b, spec("seen"), 1)
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("a ready sandbox is another than a new one (-new +ready):\n%s", diff)
			}
			if !strings.Contains(want, "NoNewPrivs:\t1") || !strings.Contains(want, "kill 1") {
				t.Fatalf("nothing was looked at: %.300s", want)
			}
			if diff := cmp.Diff(wantIso, gotIso); diff != "" {
				t.Errorf("isolation (-new +ready):\n%s", diff)
			}
		})
	}
}

// grouped reports whether control groups of version 1 limit the sandboxes.
func grouped(t *testing.T, b backend.Backend) bool {
	t.Helper()
	iso := b.Capabilities(t.Context()).Isolation
	return iso.Tier == sandboxmcp.TierL3 && slices.Contains(iso.Walls, "memory limit (cgroup v1)")
}

// TestReadyTakesOtherLimits: a ready sandbox is given to requests with other limits of memory, tasks and CPU time, or with
// a working directory of another size, and with control groups also with other cores. The sandbox then equals one that
// was built for the request, and the limits are in force.
func TestReadyTakesOtherLimits(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) { takesOtherLimits(t, newBackend(change...)) })
	}
}

func takesOtherLimits(t *testing.T, open func(testing.TB) backend.Backend) {
	b := open(t)
	defer func() { _ = b.Close(t.Context()) }()
	small, large, roomy := spec("small"), spec("large"), spec("roomy")
	small.WorkBytes, large.WorkBytes, roomy.WorkBytes = 64<<20, 64<<20, 128<<20
	small.TempBytes, large.TempBytes, roomy.TempBytes = 48<<20, 48<<20, 48<<20
	small.MemoryBytes, large.MemoryBytes, roomy.MemoryBytes = 96<<20, 256<<20, 256<<20 // the working directory has at most half
	small.CPUTime, large.CPUTime, roomy.CPUTime = 40*time.Second, 20*time.Second, 30*time.Second
	small.MaxTasks, large.MaxTasks, roomy.MaxTasks = 20, 40, 60
	if grouped(t, b) {
		small.CPUCores, large.CPUCores = 0.5, 1.5
	}
	for name, sp := range map[string][2]backend.Spec{"Lower": {large, small}, "Higher": {small, large}, "Work": {large, roomy}} {
		t.Run(name, func(t *testing.T) {
			fresh := open(t)
			defer func() { _ = fresh.Close(t.Context()) }()
			want, wantIso := seen(t, fresh, sp[1], 0)
			if err := b.(backend.Pooler).Trim(t.Context()); err != nil {
				t.Fatal(err)
			}
			readied(t, b, sp[0])
			got, gotIso := seen(t, b, sp[1], 1)
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("a ready sandbox is another than a new one (-new +ready):\n%s", diff)
			}
			if diff := cmp.Diff(wantIso, gotIso); diff != "" {
				t.Errorf("isolation (-new +ready):\n%s", diff)
			}
			until(t, b, "2 again", func(n int) bool { return n >= 2 })
			sb, err := b.Open(t.Context(), sp[1])
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sb.Close(t.Context()) }()
			r, err := sb.Start(t.Context(), backend.Process{Argv: []string{python(), "-S", "-c", "import time; x = bytearray(150 << 20); time.sleep(0.5)"}, Env: []string{"PATH=/usr/bin:/bin"}})
			if err != nil {
				t.Fatal(err)
			}
			if exit, err := r.Wait(t.Context()); err != nil || (exit.Signal == 0) != (sp[1].MemoryBytes > 150<<20) {
				t.Errorf("150 MiB with a limit of %d MiB: got %+v, %v; want it ended below 150 and not above", sp[1].MemoryBytes>>20, exit, err)
			}
		})
	}
}

// seen runs self in a sandbox; left is how many are ready once it is open.
func seen(t *testing.T, b backend.Backend, sp backend.Spec, left int) (string, any) {
	t.Helper()
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	if n := ready(b); n != left {
		t.Errorf("%d are ready beside the open one, want %d", n, left)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	var out, errs bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{
		Argv: []string{python(), "-S", "-I", backend.ProgramDir + "/main.py"}, Env: []string{"PATH=/usr/bin:/bin"},
		Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(self)}}, Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		t.Fatal(err)
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Fatal(errs.String())
	}
	return out.String(), iso
}

// TestReadyIsWatched: a sandbox without a control group is ended above its
// memory, and a fraction of a core is kept, also when it was ready for a while.
func TestReadyIsWatched(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend(process.WithoutCgroup)(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("watched")
	sp.CPUCores = 0.25
	readied(t, b, sp)
	run := func(program string) (backend.Exit, backend.Usage, time.Duration) {
		t.Helper()
		had := ready(b)
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sb.Close(t.Context()) }()
		if n := ready(b); n != had-1 {
			t.Errorf("got %d of %d still ready, want one less: the request is to take a ready one", n, had)
		}
		begin := time.Now()
		r, err := sb.Start(t.Context(), backend.Process{Argv: []string{python(), "-S", "-I", "-c", program}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return e, usage(t, sb), time.Since(begin)
	}
	time.Sleep(2 * time.Second) // time in which nothing runs, which must not be saved up as quota
	_, _, took := run("import time\nwhile time.process_time() < .4: pass")
	if took < 900*time.Millisecond {
		t.Errorf("0.4 s of processor time on a quarter core: got it within %v, want at least 900ms", took)
	}
	until(t, b, "2", func(n int) bool { return n == 2 })
	e, u, _ := run("b = []\nwhile True: b.append(bytearray(1 << 20))\n")
	if e.Signal != int(syscall.SIGKILL) || u.OOMKills == 0 {
		t.Errorf("a program of endless memory: got %+v, %+v; want signal 9 and a kill counted", e, u)
	}
}

// TestBurstAboveThePool: three times as many at once as are ready.
func TestBurstAboveThePool(t *testing.T) {
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	n := readied(t, b, spec("burst"))
	for round := range 3 {
		var wg sync.WaitGroup
		for i := range 3 * n {
			wg.Go(func() {
				sb, err := b.Open(t.Context(), spec(fmt.Sprintf("burst%d-%d", round, i)))
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = sb.Close(t.Context()) }()
				r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "exit 7"}})
				if err != nil {
					t.Error(err)
					return
				}
				if e, err := r.Wait(t.Context()); err != nil || e.Code != 7 {
					t.Errorf("got %+v, %v, want code 7", e, err)
				}
			})
		}
		wg.Wait()
		n = max(n, ready(b))
	}
	until(t, b, "as many as were used at once", func(n int) bool { return n > 2 })
}

// TestReadyGoesWhenIdle: ready sandboxes that are not used for the idle time are closed.
func TestReadyGoesWhenIdle(t *testing.T) {
	b := newBackend(func(c *process.Config) { c.PoolIdle = 300 * time.Millisecond })(t)
	defer func() { _ = b.Close(t.Context()) }()
	readied(t, b, spec("idle"))
	before := backendtest.CountBeside(t, b) // the builder is there now
	readied(t, b, spec("idle"))
	until(t, b, "none", func(n int) bool { return n == 0 })
	before.Same(t)
}

// TestReadyEndsWithItsJail: ready sandboxes end with their builder when it is killed from
// outside, and new ones are made.
func TestReadyEndsWithItsJail(t *testing.T) {
	had := childrenOf(os.Getpid())
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	readied(t, b, spec("jail"))
	for _, pid := range childrenOf(os.Getpid()) {
		if !slices.Contains(had, pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	until(t, b, "none", func(n int) bool { return n == 0 })
	readied(t, b, spec("jail"))
}

// TestReadyWhoseInitEnded: a ready sandbox whose init has ended is not given to a request,
// which would fail in it.
func TestReadyWhoseInitEnded(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	had := childrenOf(os.Getpid())
	readied(t, b, spec("init"))
	var killed []int
	for _, builder := range childrenOf(os.Getpid()) {
		if slices.Contains(had, builder) {
			continue
		}
		for _, spawner := range childrenOf(builder) {
			for _, pid := range childrenOf(spawner) {
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					killed = append(killed, pid)
				}
			}
		}
	}
	if len(killed) != 2 {
		t.Fatalf("%d inits were killed, want those of the 2 ready sandboxes", len(killed))
	}
	testkit.Until(t, "the inits have ended", func() bool { return !slices.ContainsFunc(killed, lives) })
	if out, _ := tenant(t, b, "print('up')"); out != "up\n" {
		t.Errorf("got %q, want %q", out, "up\n")
	}
}

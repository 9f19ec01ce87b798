package backendtest

import (
	"crypto/rand"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// gone fails the test if a process with the marker lives, and kills it. Such a process is the
// test's own.
func gone(t *testing.T, marker string) {
	t.Helper()
	left := Alive(marker)
	if len(left) == 0 {
		return
	}
	t.Errorf("%d processes are left: %v", len(left), left)
	for range 5 {
		for _, pid := range Alive(marker) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}
}

func killEndsEverything(t *testing.T, s *suite) {
	for name, env := range map[string]map[string]string{"deaf": nil, "storm": {"STORM": "1"}} {
		if name == "storm" && !s.full() && !s.o.HeldLimits {
			continue // the watch ends such a sandbox before the test can kill it
		}
		x := s.open(t)
		s.interlock(t, x)
		marker := "hostile-" + rand.Text()
		p := x.python(t, "d05-hostile.py", marker)
		p.Env = x.environment(env)
		r, out, errs := x.start(t, p)
		if !soon(t, patience, func() bool { return out.String() == "ready\n" }) {
			t.Fatalf("%s: does not come up: %q %q", name, out.String(), errs.String())
		}
		pause(t, 300*time.Millisecond)
		if n := len(Alive(marker)); n < 3 {
			t.Errorf("%s: only %d processes are there to be killed", name, n)
		}
		begin := time.Now()
		if err := x.Kill(t.Context()); err != nil {
			t.Errorf("%s: Kill: %v", name, err)
		}
		gone(t, marker)
		took := time.Since(begin)
		if took > time.Minute {
			t.Errorf("%s: Kill took %v", name, took)
		}
		t.Logf("%s: Kill took %v", name, took.Round(time.Millisecond))
		if e, err := r.Wait(t.Context()); err != nil || e.Signal != 9 {
			t.Errorf("%s: Wait after Kill: %+v, %v", name, e, err)
		}
		if err := r.Drain(t.Context()); err != nil {
			t.Errorf("%s: Drain after Kill: %v", name, err)
		}
	}
}

// killInit: a program that attacks the processes that keep its sandbox may at most end the whole
// sandbox. None of its processes may survive.
func killInit(t *testing.T, s *suite) {
	for _, signal := range []string{"9", "19"} {
		x := s.open(t)
		s.interlock(t, x)
		marker := "parricide-" + rand.Text()
		// on every backend its parent is the sandbox's init
		r, out, _ := x.start(t, x.python(t, `
import os, sys, time
end = time.monotonic() + 20
if os.fork() == 0:
    os.setsid()
    while time.monotonic() < end: time.sleep(0.1)
    os._exit(0)
try:
    os.kill(os.getppid(), `+signal+`)
    print("sent", flush=True)
except OSError:
    print("refused", flush=True)
while time.monotonic() < end: time.sleep(0.1)
`, marker))
		if !soon(t, patience, func() bool { return out.String() != "" || len(Alive(marker)) == 0 }) {
			t.Fatal("does not come up")
		}
		pause(t, 100*time.Millisecond)
		if err := x.Kill(t.Context()); err != nil {
			t.Errorf("Kill: %v", err)
		}
		t.Logf("signal %s to init: %q", signal, out.String())
		gone(t, marker)
		if _, err := r.Wait(t.Context()); err != nil {
			t.Errorf("Wait: %v", err)
		}
	}
}

func killTwice(t *testing.T, s *suite) {
	x := s.open(t)
	x.sh(t, `printf kept > "$WORK/kept"`)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := x.Kill(t.Context()); err != nil {
				t.Errorf("Kill: %v", err)
			}
		})
	}
	all.Wait()
	f, err := x.Files().Open(t.Context(), "kept")
	if err != nil {
		t.Fatalf("Files after Kill: %v", err)
	}
	b, err := io.ReadAll(f)
	if err != nil || string(b) != "kept" {
		t.Errorf("the file after Kill: %q, %v", b, err)
	}
	_ = f.Close()
	if list, more, err := x.Files().List(t.Context(), ".", 10); err != nil || more || len(list) != 1 || list[0].Name != "kept" {
		t.Errorf("List after Kill: %+v, %v, %v", list, more, err)
	}
	if _, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", ":"}}); err == nil {
		t.Error("Start after Kill succeeded")
	}
	if u := x.usage(t); u.PeakTasks < 1 {
		t.Errorf("Usage after Kill: %+v", u)
	}
}

func closeTwice(t *testing.T, s *suite) {
	s.open(t).sh(t, ":") // so that resources that are made only once exist now
	before := CountBeside(t, s.b)
	sb, err := s.b.Open(t.Context(), s.spec())
	if err != nil {
		t.Fatal(err)
	}
	x := &box{s: s, spec: s.spec(), Sandbox: sb}
	r, _, _ := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "sleep 30"}, Channels: 1})
	for i := range 2 {
		if err := sb.Close(t.Context()); err != nil {
			t.Errorf("Close number %d: %v", i+1, err)
		}
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Errorf("Kill after Close: %v", err)
	}
	if _, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", ":"}}); err == nil {
		t.Error("Start after Close succeeded")
	}
	if _, err := sb.Files().Open(t.Context(), "x"); err == nil {
		t.Error("Files.Open after Close succeeded")
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Errorf("Wait after Close: %v", err)
	}
	_ = r.Signal(t.Context(), 9)
	before.Same(t)
}

// churnSlack is how much the memory of a process with a constant heap varies: free pages and
// stacks that the runtime keeps for a while.
const churnSlack = 1 << 20

// Churn opens, uses and closes sandboxes. It fails if 2000 leave more behind than 200 do. It takes
// minutes.
func Churn(t *testing.T, o Options) {
	t.Helper()
	if testing.Short() {
		t.Skip("short run")
	}
	b := o.New(t)
	s := &suite{o: o, b: b, dir: outside(t)}
	defer func() { _ = b.Close(t.Context()) }()
	turn := func(n int) {
		for range n {
			sb, err := b.Open(t.Context(), s.spec())
			if err != nil {
				t.Fatal(err)
			}
			var out text
			r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "echo x; echo y > f"}, Stdin: []byte("z"), Stdout: &out, Channels: 1, Program: []backend.ProgramFile{{Name: "p", Data: make([]byte, 10000)}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if out.String() != "x\n" {
				t.Fatalf("output: %q", out.String())
			}
		}
	}
	turn(200)
	early := CountBeside(t, s.b)
	turn(1800)
	early.Same(t)
	late := CountBeside(t, s.b)
	t.Logf("after 200: %d descriptors, %d KiB; after 2000: %d descriptors, %d KiB", early.Descriptors, early.RSS>>10, late.Descriptors, late.RSS>>10)
	if most := early.RSS + early.RSS/20 + churnSlack; late.RSS > most {
		t.Errorf("memory: got %d KiB after 2000, want at most %d", late.RSS>>10, most>>10)
	}
}

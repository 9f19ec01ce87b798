package backendtest

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// freezable skips the test if sandboxes cannot be frozen. It first checks that Freeze says so.
func (s *suite) freezable(t *testing.T) {
	t.Helper()
	if s.b.Capabilities(t.Context()).Freeze {
		return
	}
	x := s.open(t)
	for name, call := range map[string]func(context.Context) error{"Freeze": x.Freeze, "Thaw": x.Thaw} {
		if err := call(t.Context()); sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable {
			t.Errorf("%s: got %v, want %s", name, err, sandboxmcp.CodeIsolationUnavailable)
		}
	}
	t.Skip("sandboxes cannot be frozen here")
}

// wakers are programs that try to continue while frozen: by signals to each other, by timers that
// signal themselves, and by starting further processes without end.
const wakers = `
import ctypes, os, signal, time
end = time.monotonic() + 60
for i in range(3):
    if os.fork() == 0:
        while time.monotonic() < end:
            os.kill(-1, signal.SIGCONT)
if os.fork() == 0:
    while time.monotonic() < end:
        try:
            if os.fork() == 0: os._exit(0)
            os.wait()
        except OSError: pass
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
n = 0
while time.monotonic() < end:
    n += 1
    with open("tick", "w") as f: f.write(str(n))
`

// freezeStopsEverything checks that a frozen sandbox uses no processor time, that its files can
// be read meanwhile, and that its programs continue after Thaw.
func freezeStopsEverything(t *testing.T, s *suite) {
	s.freezable(t)
	x := s.open(t)
	s.interlock(t, x) // its programs send signals to every process they can
	ctx := t.Context()
	r, _, errs := x.start(t, x.python(t, wakers))
	tick := func() string {
		f, err := x.Files().Open(ctx, "tick")
		if err != nil {
			return ""
		}
		defer func() { _ = f.Close() }()
		b, _ := io.ReadAll(io.LimitReader(f, 100))
		return string(b)
	}
	if !soon(t, patience, func() bool { return len(tick()) > 1 }) {
		t.Fatalf("does not come up: %q", errs.String())
	}
	for range 3 {
		for range 2 {
			if err := x.Freeze(ctx); err != nil {
				t.Fatalf("Freeze: %v", err)
			}
		}
		used, at := x.usage(t).CPU, tick()
		pause(t, 300*time.Millisecond)
		if now := x.usage(t).CPU; now-used > 10*time.Millisecond || tick() != at {
			t.Errorf("while it is frozen: used %v, tick %s to %s, want nothing", now-used, at, tick())
		}
		if _, err := x.Isolation(ctx); err != nil {
			t.Errorf("Isolation: %v", err)
		}
		if _, err := x.Start(ctx, backend.Process{Argv: []string{"/bin/true"}}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
			t.Errorf("Start: got %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
		}
		if err := x.Files().Put(ctx, "put", nil, true); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
			t.Errorf("Put: got %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if e, err := r.Wait(short); err == nil {
			t.Errorf("Wait: got %+v, want that it goes on", e)
		}
		cancel()
		for range 2 {
			if err := x.Thaw(ctx); err != nil {
				t.Fatalf("Thaw: %v", err)
			}
		}
		if !soon(t, patience, func() bool { now := tick(); return now != at && now != "" }) {
			t.Errorf("after Thaw: tick stays %s", at)
		}
	}
	if err := x.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	if err := x.Clear(ctx); err != nil {
		t.Fatalf("Clear of a frozen sandbox: %v", err)
	}
	if e, err := r.Wait(ctx); err != nil || e.Signal != 9 {
		t.Errorf("Wait after Clear: %+v, %v, want signal 9", e, err)
	}
	if got := x.sh(t, "echo on; cat /proc/self/cgroup 2>/dev/null | grep frozen; :"); got != "on\n" {
		t.Errorf("after Clear: got %q, want that it goes on", got)
	}
}

// frozenSandboxesEnd: Kill and Close end a frozen sandbox and leave nothing.
func frozenSandboxesEnd(t *testing.T, s *suite) {
	s.freezable(t)
	s.open(t).sh(t, ":")
	before := CountBeside(t, s.b)
	for _, how := range []string{"Kill", "Close"} {
		spec := s.spec()
		sb, err := s.b.Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		x := &box{s: s, spec: spec, Sandbox: sb}
		marker := "frozen-" + rand.Text()
		r, out, errs := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "echo kept > kept; (sleep 60; :) & echo up; wait", marker}})
		if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
			t.Fatalf("%s: does not come up: %q", how, errs.String())
		}
		if err := x.Freeze(t.Context()); err != nil {
			t.Fatalf("%s: Freeze: %v", how, err)
		}
		begin := time.Now()
		if how == "Kill" {
			if err := x.Kill(t.Context()); err != nil {
				t.Errorf("Kill: %v", err)
			}
			gone(t, marker)
			if _, err := x.Files().Stat(t.Context(), "kept"); err != nil {
				t.Errorf("files after Kill: %v", err)
			}
			for name, err := range map[string]error{"Freeze": x.Freeze(t.Context()), "Thaw": x.Thaw(t.Context())} {
				if sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
					t.Errorf("%s after Kill: got %v, want %s", name, err, sandboxmcp.CodeBackendUnavailable)
				}
			}
		}
		if err := x.Close(t.Context()); err != nil {
			t.Errorf("%s: Close: %v", how, err)
		}
		gone(t, marker)
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s took %v", how, took)
		}
		if e, err := r.Wait(t.Context()); err != nil || e.Signal != 9 {
			t.Errorf("%s: Wait: %+v, %v, want signal 9", how, e, err)
		}
	}
	before.Same(t)
}

// frozenProgramsAreBounded: a sandbox that holds too many kernel objects is ended, also while it is
// frozen.
func frozenProgramsAreBounded(t *testing.T, s *suite) {
	s.freezable(t)
	x := s.open(t)
	s.interlock(t, x)
	p := x.python(t, "d17-locks.py")
	p.Env = x.environment(map[string]string{"KIND": "one"})
	r, _, _ := x.start(t, p)
	for x.usage(t).OOMKills == 0 { // freeze it repeatedly while it takes kernel objects
		if err := x.Freeze(t.Context()); err != nil {
			break
		}
		pause(t, 20*time.Millisecond)
		_ = x.Thaw(t.Context())
		pause(t, 5*time.Millisecond)
		if t.Context().Err() != nil {
			return
		}
	}
	if !soon(t, patience, func() bool { return strings.Contains(strings.Join(x.usage(t).Exceeded, "\n"), "file locks") }) {
		t.Errorf("got exceeded %q, want file locks named", x.usage(t).Exceeded)
	}
	_, _ = r.Wait(t.Context())
}

package process_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestReadySandboxesGiveWay: ready sandboxes count among the tasks of all, and
// are closed for a request that would not fit beside them.
func TestReadySandboxesGiveWay(t *testing.T) {
	small, large := spec("small"), spec("large")
	large.MaxTasks = 200
	b := newBackend(func(c *process.Config) { c.MaxTasks = 256 })(t)
	defer b.Close(t.Context())
	if b.(backend.Tasker).MaxTasks() != 256 {
		t.Fatalf("MaxTasks is %d, want 256", b.(backend.Tasker).MaxTasks())
	}
	openClosed(t, b, small)
	testkit.Need(t, "namespaces", b.Capabilities(t.Context()).Isolation.Tier.AtLeast("L2"), "nothing is kept ready without namespaces")
	readied(t, b, small)
	sb, err := b.Open(t.Context(), large)
	if err != nil {
		t.Fatal(err)
	}
	if n := ready(b); n != 0 { // 64 + 200 is more than 256
		t.Errorf("%d sandboxes are ready beside the large one, want 0", n)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	until(t, b, "some again, once the large one has ended", func(n int) bool { return n > 0 })
}

// TestNothingIsKeptReadyThatDoesNotFit: the pool is filled as far as the tasks
// allow.
func TestNothingIsKeptReadyThatDoesNotFit(t *testing.T) {
	b := newBackend(func(c *process.Config) { c.MaxTasks = 100 })(t)
	defer b.Close(t.Context())
	for range 3 { // each has 64
		openClosed(t, b, spec("small"))
	}
	testkit.Need(t, "namespaces", b.Capabilities(t.Context()).Isolation.Tier.AtLeast("L2"), "nothing is kept ready without namespaces")
	until(t, b, "1", func(n int) bool { return n == 1 })
	openClosed(t, b, spec("small"))
	until(t, b, "1", func(n int) bool { return n == 1 })
}

// ofACrowd starts a crowd in a sandbox with a hundredth of a core.
func ofACrowd(t *testing.T, b backend.Backend, watched bool) (backend.Sandbox, backend.Running) {
	t.Helper()
	sp := spec("crowd")
	if watched {
		sp.CPUCores = 0.5
	}
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sb.Close(context.WithoutCancel(t.Context())) })
	r, up := startHostile(t, sb, "busy-crowd.py")
	if !within(up, 30*time.Second) {
		t.Fatal("got no output of the crowd within 30 s, want up")
	}
	if !watched && !process.SetCPU(sb, 0.01) {
		t.Log("there is no control group")
	}
	return sb, r
}

// startHostile starts a hostile program with arguments. up gets a value when it has printed up.
func startHostile(t *testing.T, sb backend.Sandbox, file string, args ...string) (r backend.Running, up <-chan struct{}) {
	t.Helper()
	printed := make(chan struct{}, 8)
	r, err := sb.Start(t.Context(), backend.Process{
		Argv: append([]string{python(), "-S", "-I", backend.ProgramDir + "/main.py"}, args...), Env: []string{"PATH=/usr/bin:/bin"},
		Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(testkit.Hostile(t, file))}}, Stdout: said(printed),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, printed
}

// within reports whether a value came within the limit.
func within(c <-chan struct{}, limit time.Duration) bool {
	end := time.NewTimer(limit)
	defer end.Stop()
	select {
	case <-c:
		return true
	case <-end.C:
		return false
	}
}

type said chan struct{}

func (s said) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "up") {
		s <- struct{}{}
	}
	return len(p), nil
}

// TestATinyShareDoesNotDelayAKill: a kill ends within 2 s, although the killed tasks need
// processor time to end and their sandbox has a hundredth of a core.
func TestATinyShareDoesNotDelayAKill(t *testing.T) {
	for name, change := range map[string]func(*process.Config){"cgroup": func(*process.Config) {}, "watched": process.WithoutCgroup} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(change)(t)
			defer b.Close(t.Context())
			for end, call := range map[string]func(backend.Sandbox, context.Context) error{"Kill": backend.Sandbox.Kill, "Clear": backend.Sandbox.Clear, "the watch's end": func(sb backend.Sandbox, _ context.Context) error { process.EndFor(sb); return nil }} { //nolint:contextcheck // the watch has no caller
				sb, r := ofACrowd(t, b, name == "watched")
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // that a kill may take
				if err := call(sb, ctx); err != nil {
					t.Errorf("%s: got %v, want nil within the limit", end, err)
				}
				if _, err := r.Wait(ctx); err != nil {
					t.Errorf("Wait after %s: got %v, want the end", end, err)
				}
				cancel()
				if err := sb.Close(t.Context()); err != nil {
					t.Errorf("Close after %s: got %v, want nil", end, err)
				}
			}
		})
	}
}

// TestTheShareHoldsAgainAfterClear: after Clear lifted the CPU quota, the session's next run
// has it again.
func TestTheShareHoldsAgainAfterClear(t *testing.T) {
	b := newBackend()(t)
	defer b.Close(t.Context())
	sb, err := b.Open(t.Context(), spec("share"))
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context())
	before, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(after.Walls, ","), strings.Join(before.Walls, ","); got != want {
		t.Errorf("walls after Clear: got %s, want %s", got, want)
	}
}

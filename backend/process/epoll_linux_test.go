package process_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

const epollWatches = 16_000 // that a user may have, for these tests; an eighth is a sandbox's share

// holds is a program of Python that holds n×n epoll watches.
func holds(where string) string {
	return `
import os, select, sys, threading, time
def hold(n):
    fds = [os.eventfd(0) for _ in range(n)]
    polls = [select.epoll() for _ in range(n)]
    for p in polls:
        for f in fds: p.register(f, select.EPOLLIN)
    return fds, polls
` + where + `
print("holds", flush=True)
time.sleep(15)
print("lived")
`
}

// few holds as many watches as it has sets times files times numbers of descriptors: a
// watch stays when its number is closed.
const few = `
files, polls = [os.eventfd(0) for _ in range(4)], [select.epoll() for _ in range(4)]
for number in range(50, 450):
    for f in files:
        os.dup2(f, number)
        for p in polls: p.register(number, select.EPOLLIN)
    os.close(number)
`

// TestASandboxThatTakesTheEpollWatchesOfItsUserIsEnded: for programs that
// have the server's user, also if they hide their descriptors.
func TestASandboxThatTakesTheEpollWatchesOfItsUserIsEnded(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("as root every sandbox has a user of its own, and so a count of its own")
	}
	for name, mode := range map[string]func(*process.Config){
		"WithNamespaces": func(*process.Config) {}, "WithoutNamespaces": process.WithoutNamespaces,
	} {
		for how, c := range map[string]struct {
			code string
			ends bool
		}{
			"one process":          {"held = hold(60)", true},
			"many processes":       {"for _ in range(6):\n    if os.fork() == 0:\n        held = hold(24)\n        time.sleep(15)\n        os._exit(0)", true},
			"below its share":      {"held = hold(30)", false},
			"ended and not reaped": {"for _ in range(4):\n    if os.fork() == 0: os._exit(0)\n    threading.Thread(target=lambda: None).start()", false},
			"descriptors, no use":  {"held = [os.eventfd(0) for _ in range(200)]", false},
			"few descriptors":      {few, true},
			"undumpable and few":   {"import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n" + few, true},
			"undumpable":           {"import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nheld = hold(60)", true},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				b := newBackend(mode, func(cfg *process.Config) {
					process.WithEpollWatches(cfg, epollWatches)
					cfg.MinTier = sandboxmcp.TierL1
				})(t)
				defer func() { _ = b.Close(t.Context()) }()
				sb, err := b.Open(t.Context(), spec("epoll"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = sb.Close(t.Context()) }()
				runHolder(t, sb, c.code, c.ends)
			})
		}
	}
}

// TestEpollWatchesAreBounded: also where a sandbox has a host user of its own.
func TestEpollWatchesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		ends bool
	}{
		"many":            {"held = hold(160)", true},
		"some":            {"held = hold(100)", false},
		"few descriptors": {strings.Replace(few, "range(4)", "range(8)", 2), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(func(*process.Config) {})(t)
			defer func() { _ = b.Close(t.Context()) }()
			sb, err := b.Open(t.Context(), spec("epoll"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sb.Close(t.Context()) }()
			runHolder(t, sb, c.code, c.ends)
		})
	}
}

// runHolder runs code that takes kernel objects, and checks whether it is ended for it.
func runHolder(t *testing.T, sb backend.Sandbox, code string, ends bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	code = holds(code)
	if !ends {
		code = strings.Replace(code, "sleep(15)\nprint", "sleep(2)\nprint", 1) // four looks
	}
	var out, errs bytes.Buffer
	r, err := sb.Start(ctx, backend.Process{
		Argv: []string{python(), "/run/program/main.py"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &errs,
		Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(code)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := r.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = sb.Kill(ctx)
	if err := r.Drain(ctx); err != nil {
		t.Error(err)
	}
	exceeded := usage(t, sb).Exceeded
	if ended := exit.Signal == 9; ended != ends || ended != (len(exceeded) > 0) {
		t.Errorf("got exit %+v, exceeded %q, output %q %q; want ended %v", exit, exceeded, out.String(), errs.String(), ends)
	}
}

// TestASandboxIsCountedAfterALittleWork: what a program takes in a few milliseconds and
// keeps is seen, although it rests from then on.
func TestASandboxIsCountedAfterALittleWork(t *testing.T) {
	b := newBackend(func(*process.Config) {})(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("locks"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	runHolder(t, sb, `
import fcntl
time.sleep(2) # until its start is counted
held = [open(str(n), "w") for n in range(48)]
for at in range(100):
    for f in held: fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * at)
`, true)
}

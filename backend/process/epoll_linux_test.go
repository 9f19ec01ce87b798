package process_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

const epollWatches = 16_000 // that a user may have, for these tests; an eighth is a sandbox's share

// TestASandboxThatTakesTheEpollWatchesOfItsUserIsEnded: for programs that
// have the server's user, also if they hide their descriptors.
func TestASandboxThatTakesTheEpollWatchesOfItsUserIsEnded(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("as root every sandbox has a user of its own, and so a count of its own")
	}
	for name, mode := range map[string]func(*process.Config){
		"WithNamespaces": func(*process.Config) {}, "WithoutNamespaces": process.WithoutNamespaces,
	} {
		for how, ends := range map[string]bool{
			"one process": true, "many processes": true, "few descriptors": true, "undumpable": true, "undumpable and few": true,
			"below its share": false, "ended and not reaped": false, "descriptors, no use": false, "undumpable, no use": false,
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
				runHolder(t, sb, "holds-epoll-watches.py", how, ends)
			})
		}
	}
}

// TestEpollWatchesAreBounded: also where a sandbox has a host user of its own, for programs that
// are executed and for forks.
func TestEpollWatchesAreBounded(t *testing.T) {
	for how, ends := range map[string]bool{
		"some": false, "sets in a set": true, "a few sets in a set": false,
		"many of one pipe": true, "some of one pipe": false, "shared by many": false, "a pipe that is open often": true, "a named pipe that is open often": true,
		"on their way": true, "on their way and back": false, "added and removed": false,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBackend(func(*process.Config) {})(t)
			defer func() { _ = b.Close(t.Context()) }()
			sp := spec("epoll")
			sp.MaxTasks = 64
			sb, err := b.Open(t.Context(), sp)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sb.Close(t.Context()) }()
			runHolder(t, sb, "holds-epoll-watches.py", how, ends)
		})
	}
}

// TestNoWatchIsAddedBeforeItIsGranted: a program that adds watches of sets faster than they are
// counted is ended before it has them, however it was started. 362 of them are too many. A count
// that finds 361 grants 64 more, and 32 of an earlier grant may be added while it counts, so a
// program has 457 at most when it is ended. This one wants 488.
func TestNoWatchIsAddedBeforeItIsGranted(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	testkit.Need(t, "notices", jail.HaveNotices(), "calls that wait cannot be killed before Linux 5.19")
	const nests = `
import select, os, time
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp_filters")], flush=True)
inner, outer = select.epoll(), select.epoll()
for number in range(20, 508):
    outer.register(os.dup2(inner.fileno(), number), select.EPOLLIN)
    os.close(number)
print("built", flush=True)
time.sleep(5)
`
	for name, way := range map[string]struct {
		forked  bool
		filters string // a fork has that of its zygote, too
	}{"Forked": {true, "['3']\n"}, "Executed": {false, "['2']\n"}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()(t)
			defer func() { _ = b.Close(t.Context()) }()
			if way.forked {
				hatched(t, b, spec("warm"))
			}
			p, out := forkable(nests)
			if !way.forked {
				p.Prestart = nil
			}
			e, u, _ := begun(t, b, spec("nests"), p, nil)
			if e.Signal != 9 || len(u.Exceeded) == 0 || out.String() != way.filters {
				t.Errorf("got exit %+v, exceeded %q, output %q; want it ended with output %q", e, u.Exceeded, out.String(), way.filters)
			}
		})
	}
}

// TestPipesAreHeldWhileASandboxEnds: those that are open often, of a sandbox in which watches were
// added.
func TestPipesAreHeldWhileASandboxEnds(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const opens = `
import os, select, time
pipe, files, sets = os.pipe(), [os.eventfd(0) for _ in range(40)], select.epoll()
for f in files: sets.register(f, select.EPOLLIN)
opened = [os.open(f"/proc/self/fd/{pipe[0]}", os.O_RDONLY | os.O_NONBLOCK) for _ in range(100)]
print(os.fstat(pipe[0]).st_ino, flush=True)
time.sleep(20)
`
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("pipes"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	r := started(t, sb, opens)
	var inode int
	if _, err := fmt.Fscan(r, &inode); err != nil {
		t.Fatal(err)
	}
	held := func() (n int) {
		for fd := range 1024 {
			if to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && to == fmt.Sprintf("pipe:[%d]", inode) {
				n++
			}
		}
		return n
	}
	release := process.HoldPipes(sb)
	if got := held(); got != 1 {
		t.Errorf("held: got %d descriptors of the pipe in the server, want 1", got)
	}
	release()
	if got := held(); got != 0 {
		t.Errorf("released: got %d descriptors of the pipe in the server, want none", got)
	}
}

// runHolder runs a hostile program that takes kernel objects, in the way of that name if
// there are several, and checks whether it is ended for it.
func runHolder(t *testing.T, sb backend.Sandbox, file, how string, ends bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seconds := "15"
	if !ends {
		seconds = "2" // four rounds of the watch
	}
	var out, errs bytes.Buffer
	r, err := sb.Start(ctx, backend.Process{
		Argv: []string{python(), "/run/program/main.py"}, Env: []string{"PATH=/usr/bin:/bin", "HOW=" + how, "SECONDS=" + seconds}, Stdout: &out, Stderr: &errs,
		Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(testkit.Hostile(t, file))}},
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
	runHolder(t, sb, "holds-locks-and-rests.py", "", true)
}

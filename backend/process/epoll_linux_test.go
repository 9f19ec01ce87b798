package process_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
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
			"below its share": false, "ended and not reaped": false, "descriptors, no use": false,
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

// TestEpollWatchesAreBounded: also where a sandbox has a host user of its own.
func TestEpollWatchesAreBounded(t *testing.T) {
	for how, ends := range map[string]bool{"many": true, "some": false, "more in few descriptors": true, "sets in a set": true, "a few sets in a set": false} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBackend(func(*process.Config) {})(t)
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

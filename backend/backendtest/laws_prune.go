package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// forker starts processes that start processes, a bounded number of times. Each leaves its parent.
const forker = `n=0; while [ $n -lt 300 ]; do n=$((n + 1)); (setsid sh -c 'sleep 60; :' "$0" &) ; done 2>/dev/null; sleep 60; :`

// pruneKeepsWhatItIsTold: Prune ends every process but those of keep and their children, also
// deaf ones, orphans, and those that are forked meanwhile.
func pruneKeepsWhatItIsTold(t *testing.T, s *suite) {
	x := s.open(t)
	p, ok := x.Sandbox.(backend.Pruner)
	if !ok {
		t.Skip("this backend ends no single processes")
	}
	keeper, kept := "keeper-"+rand.Text(), "kept-"+rand.Text()
	r, out, _ := x.start(t, backend.Process{
		Argv: []string{"/bin/sh", "-c", `sh -c 'echo up; sleep 60; :' "$1" & read line <&4; echo "got $line"; wait`, keeper, kept}, Channels: 2,
	})
	deaf, forked := "deaf-"+rand.Text(), "fork-"+rand.Text()
	other := x.startDeaf(t, deaf)
	x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", forker, forked}})
	if !soon(t, patience, func() bool { return strings.Contains(out.String(), "up") && len(Alive(forked)) > 5 }) {
		t.Fatal("the processes did not start")
	}
	err := p.Prune(t.Context(), r)
	if errors.Is(err, errors.ErrUnsupported) && !s.full() {
		t.Skip("a sandbox without a pid namespace cannot do it")
	}
	if err != nil {
		t.Fatalf("Prune: got %v, want nil", err)
	}
	gone(t, deaf)
	gone(t, forked)
	if e, err := other.Wait(t.Context()); err != nil || e != (backend.Exit{Signal: 9}) {
		t.Errorf("Wait after Prune: got %+v, %v, want signal 9", e, err)
	}
	if len(Alive(keeper)) == 0 || len(Alive(kept)) == 0 {
		t.Fatalf("got processes %v and %v, want both that were kept", Alive(keeper), Alive(kept))
	}
	if _, err := r.Channel(0).Write([]byte("a line\n")); err != nil {
		t.Fatal(err)
	}
	if !soon(t, patience, func() bool { return strings.Contains(out.String(), "got a line") }) {
		t.Errorf("got %q, want that the kept process goes on", out.String())
	}
	if err := p.Prune(t.Context()); err != nil {
		t.Errorf("Prune of everything: got %v, want nil", err)
	}
	gone(t, keeper)
	if got := x.sh(t, "echo on"); got != "on\n" {
		t.Errorf("after Prune: got %q, want that the sandbox can be used", got)
	}
}

// pruneEndsLeaderless: a process whose first thread has ended looks like one that has ended itself.
// Prune ends its other threads (D23).
func pruneEndsLeaderless(t *testing.T, s *suite) {
	if !s.full() {
		s.lacks(t, "a pid namespace")
	}
	x := s.open(t)
	s.interlock(t, x)
	p, ok := x.Sandbox.(backend.Pruner)
	if !ok {
		t.Skip("this backend ends no single processes")
	}
	keep, _, _ := x.start(t, backend.Process{Argv: []string{"/bin/sleep", "60"}})
	r, out, errs := x.start(t, x.python(t, "d23-leaderless.py"))
	if !soon(t, patience, func() bool { return out.String() == "alone\n" }) {
		t.Fatalf("its first thread does not end: %q %q", out.String(), errs.String())
	}
	if err := p.Prune(t.Context(), keep); err != nil {
		t.Fatalf("Prune: got %v, want nil", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if e, err := r.Wait(ctx); err != nil || e != (backend.Exit{Signal: 9}) {
		t.Errorf("Wait after Prune: got %+v, %v, want signal 9", e, err)
	}
}

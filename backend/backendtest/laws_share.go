package backendtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// capabilitiesAtOnce: concurrent first callers all get the same answer.
func capabilitiesAtOnce(t *testing.T, s *suite) {
	b := s.o.New(t)
	defer func() {
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	var answers [6]backend.Capabilities
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = b.Capabilities(t.Context()) })
	}
	wg.Wait()
	for i, c := range answers {
		if !c.Available || c.Isolation.Tier != s.o.Tier || len(c.Isolation.Walls) != len(answers[0].Isolation.Walls) {
			t.Errorf("caller %d: available %v, reason %q, tier %q, %d walls", i, c.Available, c.Reason, c.Isolation.Tier, len(c.Isolation.Walls))
		}
	}
}

// openBesideInFlight: the kernel counts descriptors in transit through sockets by host user. A
// sandbox that has as many in transit as it can does not keep others from being opened, neither
// while it lives nor afterwards (B09).
func openBesideInFlight(t *testing.T, s *suite) {
	testkit.User(t) // as root, every sandbox has a user of its own
	greedy := s.open(t)
	s.interlock(t, greedy)
	_, out, errs := greedy.start(t, greedy.python(t, "b09-in-flight.py"))
	if !soon(t, patience, func() bool { return strings.HasSuffix(out.String(), "\n") }) {
		t.Fatalf("it does not come up: %q %q", out.String(), errs.String())
	}
	var sent int
	if _, err := fmt.Sscanf(out.String(), "up %d\n", &sent); err != nil || s.full() && sent < 250 {
		t.Fatalf("%d descriptors are on their way, so nothing is shown: %q", sent, out.String())
	}
	t.Logf("%d descriptors are on their way", sent)
	works := func(when string) {
		t.Helper()
		begin := time.Now()
		x := s.open(t)
		if got := x.sh(t, "echo runs"); got != "runs\n" {
			t.Errorf("%s: another sandbox prints %q", when, got)
		}
		if _, ok := x.Sandbox.(backend.Networker); ok && s.full() {
			x.network(t)
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s: another sandbox took %v", when, took)
		}
	}
	for range 3 { // each spawner is used once
		works("while they are on their way")
	}
	if err := greedy.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	works("when they are gone")
}

// filesShut: a program that removes all permissions of its own directory does not keep the server
// from collecting its files (E02).
func filesShut(t *testing.T, s *suite) {
	x := s.open(t)
	e := x.run(t, s.process(t, x, "e02-shut.sh"))
	if e.Out != "done\n" {
		t.Fatalf("shut: %+v %q %q", e.Exit, e.Out, e.Err)
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, more, err := x.Files().List(t.Context(), ".", 10)
	if err != nil || more || len(list) != 2 {
		t.Fatalf("List: %d entries, more %v, %v; want dir and plain", len(list), more, err)
	}
	f, err := x.Files().Open(t.Context(), "plain")
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// socketBuffers: the buffers of sockets that are not read count as memory and are bounded (D14).
func socketBuffers(t *testing.T, s *suite) {
	if !s.o.HeldLimits { // the backend watches it then, and the isolation must say so
		iso, err := s.open(t).Isolation(t.Context())
		if err != nil || !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.HasPrefix(w, "memory of sockets") }) && s.full() {
			t.Errorf("Isolation: %v; nothing is said of the buffers of sockets: %q", err, iso.Weak)
		}
	}
	for _, kind := range []string{"tcp", "udp", "undone", "corked"} {
		t.Run(kind, func(t *testing.T) {
			if !s.full() {
				s.lacks(t, "a network namespace of its own")
			}
			if reason := s.o.Lacks[kind]; reason != "" {
				t.Skip(reason)
			}
			x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 64 * mib })
			s.interlock(t, x)
			iso, err := x.Isolation(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range iso.Weak {
				if strings.Contains(w, "buffers of network sockets") {
					t.Skipf("this kernel does not count them: %s", w)
				}
			}
			p := x.python(t, "d14-loopback.py")
			p.Env = x.environment(map[string]string{"KIND": kind})
			e := x.run(t, p)
			if x.usage(t).OOMKills > 0 {
				t.Logf("it was ended: %+v", e.Exit)
				return
			}
			queued, err := strconv.Atoi(strings.TrimSpace(e.Out))
			if err != nil || queued < 1 {
				t.Fatalf("nothing was tried: %+v %q %q", e.Exit, e.Out, e.Err)
			}
			t.Logf("%d MiB queued", queued)
			if queued > 64 {
				t.Errorf("%d MiB lie in buffers, want at most 64", queued)
			}
		})
	}
}

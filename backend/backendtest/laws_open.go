package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

func capabilitiesFromTrial(t *testing.T, s *suite) {
	c := s.b.Capabilities(t.Context())
	if !c.Available || c.Reason != "" {
		t.Fatalf("Capabilities: available %v, reason %q", c.Available, c.Reason)
	}
	if c.Isolation.Tier != s.o.Tier {
		t.Errorf("tier: got %s, want %s", c.Isolation.Tier, s.o.Tier)
	}
	if s.walls() && (len(c.Isolation.Walls) == 0 || c.Isolation.Kernel == "" || len(c.Isolation.PolicySHA256) != 64) {
		t.Errorf("the trial's isolation is incomplete: %+v", c.Isolation)
	}
	held := slices.ContainsFunc(c.Isolation.Walls, func(w string) bool { return strings.HasPrefix(w, "memory limit") })
	if held != s.o.HeldLimits {
		t.Errorf("memory limit among the walls: got %v, want %v: %q", held, s.o.HeldLimits, c.Isolation.Walls)
	}
	const calls = 100_000 // a trial for each of them would take minutes
	begin := time.Now()
	for n := range calls {
		_ = s.b.Capabilities(t.Context())
		if time.Since(begin) > time.Minute {
			t.Errorf("%d further calls took a minute, want %d", n+1, calls)
			break
		}
	}
	if s.b.Name() == "" {
		t.Error("the backend has no name")
	}
}

func openRefusesHigherTier(t *testing.T, s *suite) {
	before := CountBeside(t, s.b)
	for _, tier := range []sandboxmcp.Tier{sandboxmcp.TierL2, sandboxmcp.TierL3, sandboxmcp.TierL4} {
		if s.o.Tier.AtLeast(tier) {
			continue
		}
		spec := s.spec()
		spec.MinTier = tier
		sb, err := s.b.Open(t.Context(), spec)
		if err == nil {
			_ = sb.Close(t.Context())
		}
		if got := sandboxmcp.CodeOf(err); got != sandboxmcp.CodeIsolationUnavailable {
			t.Errorf("Open with %s: got code %q (%v), want %q", tier, got, err, sandboxmcp.CodeIsolationUnavailable)
		}
	}
	before.Same(t)
}

func openFailsCleanly(t *testing.T, s *suite) {
	s.open(t).sh(t, ":") // so that resources that are made only once exist now
	before := CountBeside(t, s.b)
	wrong := map[string]func(*backend.Spec){
		"missing directory":  func(p *backend.Spec) { p.Trees = backend.Trees(filepath.Join(s.dir, "missing")) },
		"bad id":             func(p *backend.Spec) { p.ID = "../../x" },
		"relative directory": func(p *backend.Spec) { p.Trees = backend.Trees("etc") },
	}
	if s.o.Tier != sandboxmcp.TierL4 {
		wrong["no room for anybody"] = func(p *backend.Spec) { p.MinTier = sandboxmcp.TierL4 }
	}
	for name, change := range wrong {
		spec := s.spec()
		change(&spec)
		sb, err := s.b.Open(t.Context(), spec)
		if err == nil {
			_ = sb.Close(t.Context())
			if name != "bad id" { // a backend may accept such an id
				t.Errorf("%s: Open succeeded", name)
			}
			continue
		}
		if e := (*sandboxmcp.Error)(nil); !errors.As(err, &e) {
			t.Errorf("%s: the error is no *sandboxmcp.Error: %v", name, err)
		}
	}
	before.Same(t)
}

func openCancelled(t *testing.T, s *suite) {
	s.open(t).sh(t, ":")
	before := CountBeside(t, s.b)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if sb, err := s.b.Open(ended, s.spec()); !errors.Is(err, context.Canceled) {
		if err == nil {
			_ = sb.Close(t.Context())
		}
		t.Errorf("Open with an ended context: got %v, want %v", err, context.Canceled)
	}
	for range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		n, err := rand.Int(rand.Reader, big.NewInt(3000))
		if err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(n.Int64())*time.Microsecond, cancel)
		sb, err := s.b.Open(ctx, s.spec())
		timer.Stop()
		cancel()
		if err == nil { // the context ended after Open returned, which has no effect
			if r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", ":"}}); err != nil {
				t.Errorf("Start after the context of Open ended: %v", err)
			} else if _, err := r.Wait(t.Context()); err != nil {
				t.Errorf("Wait after the context of Open ended: %v", err)
			}
			_ = sb.Close(t.Context())
		}
	}
	before.Same(t)
}

func openManyAtOnce(t *testing.T, s *suite) {
	s.open(t).sh(t, ":")
	before := CountBeside(t, s.b)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			spec := s.spec()
			sb, err := s.b.Open(t.Context(), spec)
			if err != nil {
				t.Errorf("Open %d: %v", i, err)
				return
			}
			defer func() { _ = sb.Close(t.Context()) }()
			var out text
			r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "echo $0; sleep 0.2", spec.ID}, Stdout: &out, Env: []string{"PATH=/usr/bin:/bin"}})
			if err != nil {
				t.Errorf("Start %d: %v", i, err)
				return
			}
			if e, err := r.Wait(t.Context()); err != nil || e != (backend.Exit{}) {
				t.Errorf("Wait %d: %+v, %v", i, e, err)
			}
			if err := r.Drain(t.Context()); err != nil || out.String() != spec.ID+"\n" {
				t.Errorf("output %d: got %q, %v, want %q", i, out.String(), err, spec.ID)
			}
		})
	}
	all.Wait()
	before.Same(t)
}

func readOnlyDirs(t *testing.T, s *suite) {
	dir, err := os.MkdirTemp(sharedDir(t), "shown") //nolint:usetesting // the sandbox's user must be able to enter it
	if err != nil {
		t.Skipf("no directory to show: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "shown")
	write(t, filepath.Join(filepath.Dir(dir), filepath.Base(dir)+".not"), "hidden")
	t.Cleanup(func() { _ = os.Remove(dir + ".not") })
	x := s.open(t, func(p *backend.Spec) { p.Trees = backend.Trees(dir) })
	got := x.sh(t, "cat "+dir+"/file; (echo x > "+dir+"/new) 2>/dev/null && echo written; (echo x >> "+dir+"/file) 2>/dev/null && echo appended; cat "+dir+".not 2>/dev/null; :")
	if got != "shown" {
		t.Errorf("in the sandbox: got %q, want %q", got, "shown")
	}
}

func shownElsewhere(t *testing.T, s *suite) {
	dir, err := os.MkdirTemp(sharedDir(t), "elsewhere") //nolint:usetesting // the sandbox's user must be able to enter it
	if err != nil {
		t.Skipf("no directory to show: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "shown")
	at, want := backend.PackageDir+"/law", "shown"
	look := "cat " + at + "/file; (echo x > " + at + "/new) 2>/dev/null && echo written; cat " + dir + "/file 2>/dev/null; :"
	if !s.full() { // it has no mounts of its own
		look = "cat " + dir + "/file"
	}
	show := func(p *backend.Spec) { p.Trees = []backend.Tree{{Host: dir, Inside: at}} }
	x := s.open(t, show)
	if got := x.sh(t, look); got != want {
		t.Errorf("in the sandbox: got %q, want %q", got, want)
	}
	if s.full() {
		for _, table := range []string{"mountinfo", "mounts", "mountstats"} {
			if got := x.sh(t, "cat /proc/self/"+table); !strings.Contains(got, at) || strings.Contains(got, filepath.Base(dir)) {
				t.Errorf("%s: got %q, want %s and nothing of %s", table, got, at, dir)
			}
		}
	}
	// A parent directory shown at its own path does not replace a tree shown at another path.
	s.open(t, func(p *backend.Spec) { p.Trees = backend.Trees(filepath.Dir(dir)) })
	if got := s.open(t, show).sh(t, look); s.full() && got != want && got != want+want {
		t.Errorf("beside a wider one: got %q, want %q", got, want)
	}
}

// sharedDir returns a directory of the host, not below /tmp, that every user may write to.
func sharedDir(t *testing.T) string {
	t.Helper()
	for _, d := range []string{"/var/tmp", "/dev/shm"} {
		if st, err := os.Stat(d); err == nil && st.Mode()&os.ModeSticky != 0 {
			return d
		}
	}
	t.Skip("no directory that everybody may write into")
	return ""
}

func write(t testing.TB, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err == nil {
		_, err = f.WriteString(content)
		err = errors.Join(err, f.Chmod(0o644), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func isolationAgrees(t *testing.T, s *suite) {
	x := s.open(t)
	x.sh(t, ":")
	iso, err := x.Isolation(t.Context())
	if err != nil {
		t.Fatalf("Isolation: %v", err)
	}
	if s.walls() && len(iso.PolicySHA256) != 64 {
		t.Errorf("policy: got %q, want a digest", iso.PolicySHA256)
	}
	able := s.b.Capabilities(t.Context()).Isolation
	able.PolicySHA256 = iso.PolicySHA256 // the digest also covers the trees that are shown
	if diff := cmp.Diff(able, iso); diff != "" {
		t.Errorf("isolation differs from the capabilities (-capabilities +isolation):\n%s", diff)
	}
	if iso.Backend != s.b.Name() {
		t.Errorf("backend: got %q, want %q", iso.Backend, s.b.Name())
	}
	if s.walls() && !s.o.HeldLimits && !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.HasPrefix(w, "memory") }) {
		t.Errorf("memory is not held, and the weak spots do not say so: %q", iso.Weak)
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if iso, err := x.Isolation(t.Context()); err == nil {
		t.Errorf("Isolation of an ended sandbox is a guess: %+v", iso)
	}
}

func closeBackend(t *testing.T, s *suite) {
	sb, err := s.b.Open(t.Context(), s.spec())
	if err != nil {
		t.Fatal(err)
	}
	marker := "left-open-" + rand.Text()
	var out text
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "echo up; sleep 30; :", marker}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatal("the program does not run")
	}
	for i := range 2 {
		if err := s.b.Close(t.Context()); err != nil {
			t.Errorf("Close number %d: %v", i+1, err)
		}
	}
	if e, err := r.Wait(t.Context()); err != nil || !e.Lost {
		t.Errorf("the program ended with %+v, %v, want that it was lost", e, err)
	}
	if left := Alive(marker); len(left) > 0 { // processes of another kernel are not seen here
		t.Errorf("Close left processes: %v", left)
	}
	if late, err := s.b.Open(t.Context(), s.spec()); err == nil {
		_ = late.Close(t.Context())
		t.Error("Open after Close succeeded")
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Errorf("closing a sandbox after its backend: %v", err)
	}
}

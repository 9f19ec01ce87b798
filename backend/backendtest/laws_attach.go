package backendtest

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// shownDir makes a directory with a file on the host, which sandboxes can be shown.
func shownDir(t *testing.T, content string) string {
	t.Helper()
	dir, err := os.MkdirTemp(sharedDir(t), "attach") //nolint:usetesting // the sandbox's user must be able to enter it
	if err != nil {
		t.Skipf("no directory to show: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), content)
	return dir
}

// attachLive: an attached tree is visible in the live sandbox, to running and later programs,
// read-only, and in no other sandbox. Its path on the host is not visible.
func attachLive(t *testing.T, s *suite) {
	x, other := s.open(t), s.open(t)
	dir := shownDir(t, "first")
	at := backend.PackageDir + "/law"
	tree := backend.Tree{Host: dir, Inside: at}
	if !s.b.Capabilities(t.Context()).Attach {
		if err := x.Attach(t.Context(), tree); sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable {
			t.Errorf("got %v, want %s", err, sandboxmcp.CodeIsolationUnavailable)
		}
		return
	}
	marker := "attach-" + rand.Text()
	r, out, errs := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "echo up; until [ -e " + at + "/file ]; do sleep 0.02; done; cat " + at + "/file", marker}})
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatalf("does not come up: %q", errs.String())
	}
	before, err := x.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Attach(t.Context(), tree); err != nil {
		t.Fatalf("Attach: %v", err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e != (backend.Exit{}) {
		t.Errorf("the program that ran: %+v, %v", e, err)
	}
	if err := r.Drain(t.Context()); err != nil || out.String() != "up\nfirst" {
		t.Errorf("the program that ran: got %q (%q), %v, want the file", out.String(), errs.String(), err)
	}
	second := shownDir(t, "second")
	if err := x.Attach(t.Context(), backend.Tree{Host: second, Inside: at + "-2"}); err != nil {
		t.Fatalf("Attach of a second: %v", err)
	}
	got := x.sh(t, "cat "+at+"/file "+at+"-2/file; (echo x > "+at+"/file) 2>/dev/null && echo written; (echo x > "+at+"/new) 2>/dev/null && echo made; "+
		"mkdir "+backend.PackageDir+"/mine 2>/dev/null && echo mine; cat "+dir+"/file 2>/dev/null; ls "+backend.PackageDir)
	if want := "firstsecondlaw\nlaw-2\n"; got != want {
		t.Errorf("in the sandbox: got %q, want %q", got, want)
	}
	for _, table := range []string{"mountinfo", "mounts", "mountstats"} {
		if got := x.sh(t, "cat /proc/self/"+table); !strings.Contains(got, at) || strings.Contains(got, filepath.Base(dir)) {
			t.Errorf("%s: got %q, want %s and nothing of %s", table, got, at, dir)
		}
	}
	if got := other.sh(t, "ls -A "+backend.PackageDir+" 2>/dev/null; grep -c "+at+" /proc/self/mountinfo; :"); got != "0\n" {
		t.Errorf("in another sandbox: got %q, want nothing", got)
	}
	if err := other.Attach(t.Context(), backend.Tree{Host: filepath.Join(second, "file"), Inside: at}); err != nil {
		t.Errorf("Attach of a file: %v", err)
	}
	if got := other.sh(t, "cat "+at+"; (echo x > "+at+") 2>/dev/null && echo written; :"); got != "second" {
		t.Errorf("a file in another sandbox: got %q, want second", got)
	}
	if after, err := x.Isolation(t.Context()); err != nil || strings.Join(after.Walls, ",") != strings.Join(before.Walls, ",") {
		t.Errorf("walls: got %q, %v, want %q", after.Walls, err, before.Walls)
	}
	refusedTrees(t, x, dir, at)
}

// refusedTrees: a tree that cannot be attached is refused, and attached trees stay.
func refusedTrees(t *testing.T, x *box, dir, at string) {
	t.Helper()
	if err := x.Attach(t.Context(), backend.Tree{Host: dir, Inside: at}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("at a place that is taken: got %v, want %v", err, fs.ErrExist)
	}
	for name, tree := range map[string]backend.Tree{
		"missing":   {Host: dir + "/missing", Inside: backend.PackageDir + "/a"},
		"relative":  {Host: "etc", Inside: backend.PackageDir + "/a"},
		"elsewhere": {Host: dir, Inside: "/usr/share/a"},
		"deep":      {Host: dir, Inside: backend.PackageDir + "/a/b"},
		"above":     {Host: dir, Inside: backend.PackageDir + "/.."},
		"itself":    {Host: dir, Inside: backend.PackageDir + "/."},
		"own path":  {Host: dir},
		"NUL":       {Host: dir, Inside: backend.PackageDir + "/a\x00b"},
	} {
		if err := x.Attach(t.Context(), tree); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s: got %v, want %s", name, err, sandboxmcp.CodeInvalidArgument)
		}
	}
	if got := x.sh(t, "cat "+at+"/file; ls "+backend.PackageDir); got != "firstlaw\nlaw-2\n" {
		t.Errorf("afterwards: got %q, want both", got)
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := x.Attach(t.Context(), backend.Tree{Host: dir, Inside: at + "-3"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("after Kill: got %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
	}
}

// attachManyLists: the backend needs no more processes for sandboxes with fifty different lists of
// trees than for one list.
func attachManyLists(t *testing.T, s *suite) {
	if !s.b.Capabilities(t.Context()).Attach {
		t.Skip("nothing can be attached here")
	}
	with := func(i int) *box {
		dir := shownDir(t, string(rune('a'+i%26)))
		spec := s.spec()
		spec.Trees = []backend.Tree{{Host: dir, Inside: backend.PackageDir + "/set"}}
		sb, err := s.b.Open(t.Context(), spec)
		if err != nil {
			t.Fatalf("Open with list %d: %v", i, err)
		}
		return &box{s: s, spec: spec, Sandbox: sb}
	}
	end := func(x *box) {
		if err := x.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	end(with(0))
	before := CountBeside(t, s.b)
	for i := range 50 {
		x := with(i)
		if i%10 == 0 {
			if got, want := x.sh(t, "cat "+backend.PackageDir+"/set/file"), string(rune('a'+i%26)); got != want {
				t.Errorf("list %d: got %q, want %q", i, got, want)
			}
		}
		end(x)
	}
	before.Same(t)
}

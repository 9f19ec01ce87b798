package engine_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestInstallFromACell: %pip, !pip and !npm ask the server, which installs into the session of the
// cell, also if the cell holds the only place in the queue. The rest of the cell sees the packages.
func TestInstallFromACell(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t, func(c *engine.Config) { c.MaxConcurrent, c.PackagesDeny = 1, []string{"node:*", "absent"} })
	needs(t, e, sandboxmcp.Python)
	in := func(id sandboxmcp.SessionID, code string) sandboxmcp.Request {
		return sandboxmcp.Request{SessionID: id, Code: code}
	}
	one, two := create(t, e, sandboxmcp.SessionSpec{}), create(t, e, sandboxmcp.SessionSpec{})
	stdout(t, e, "Installed demo 2.0 and 1 dependency for session "+string(one)+".\ntwo, part\n", in(one, "%pip install -q 'demo>=1'\nimport demo, os\nprint(demo.says)"))
	stdout(t, e, "two, part\n", in(one, "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import demo; print(demo.says)'], capture_output=True, text=True).stdout, end='')"))
	var notes []string
	noted := in(two, "%pip install -q nothing-like-it")
	noted.Note = func(text string) { notes = append(notes, text) }
	if execute(t, e, noted); !slices.Contains(notes, "looking for nothing-like-it") {
		t.Errorf("got the notes %q, want one that names the server's step", notes)
	}
	stdout(t, e, "None\n", in(two, misses))
	for id, want := range map[sandboxmcp.SessionID]string{one: "Installed: demo, ", two: "only Python's own library is"} {
		if res := execute(t, e, in(id, "import not_there")); !strings.Contains(res.Note, want) {
			t.Errorf("session %s: got the note %q, want %q", id, res.Note, want)
		}
	}
	stdout(t, e, "Installed demo 1.0 for session "+string(two)+".\none\n", in(two, "version = '1.0'\n!python3 -m pip install demo=={version}\nimport demo\nprint(demo.says)"))
	for code, want := range map[string]string{
		"%pip install absent":         "packages_deny",
		"!pip install ../x":           "package_rejected",
		"!npm install demo":           "packages_deny",
		"!pip install demo; echo too": "no host is open", // a shell's command is left to pip
		"%pip install -r list.txt":    "no host is open",
	} {
		if res := execute(t, e, in(one, code)); res.Success || !strings.Contains(res.Stderr, want) {
			t.Errorf("%s: got %s %q, want %s", code, res.Status, res.Stderr, want)
		}
	}
	stdout(t, e, "two, part\n", in(one, "print(demo.says)"))
}

// TestAProgramTellsTheIndexNoNames: a program can ask for packages as its cell does. What it has read is not asked for.
func TestAProgramTellsTheIndexNoNames(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	for _, c := range []struct{ code, want string }{
		{"import os\nframe = b'{\"type\":\"install\",\"id\":1,\"language\":\"python\",\"packages\":[\"de' + b'mo\"]}'\nos.write(3, len(frame).to_bytes(4, 'big') + frame); print(os.read(4, 999))", "is not written in the cell"},
		{"name = 'de' + 'mo'\n%pip install {name}", "is not written in the cell"},
		{"tail = 'x'\n!npm install demo~{tail}", "is not written in the cell"},
		{"demos = 'demo-x.demo'\n%pip install {demos[-4:]}", "is not written in the cell"},
	} {
		if res := execute(t, e, in(id, c.code)); !strings.Contains(res.Stdout+res.Stderr, c.want) || x.asked.Load() != 0 {
			t.Errorf("%s: got %s %q %q and %d requests, want %q and none", c.code, res.Status, res.Stdout, res.Stderr, x.asked.Load(), c.want)
		}
	}
	for _, code := range []string{"for name in ['demo']:\n    %pip install {name}", "%pip install 'demo[extra]>=1'"} {
		if res := execute(t, e, in(id, code)); strings.Contains(res.Stderr, "is not written") || x.asked.Load() == 0 {
			t.Errorf("%s: got %s %q and %d requests, want the index to be asked", code, res.Status, res.Stderr, x.asked.Load())
		}
	}
}

// TestNoCellInstallsASecret: also none that only programs of its session still have.
func TestNoCellInstallsASecret(t *testing.T) {
	x := newIndex(t)
	dir := filepath.Join(t.TempDir(), "state")
	e := x.openAt(t, dir)
	needs(t, e, sandboxmcp.Python)
	addSecret(t, e, "TOKEN", secret)
	id := create(t, e, sandboxmcp.SessionSpec{})
	execute(t, e, in(id, "import os; kept = os.environ['TOKEN']"))
	if err := e.DeleteSecret(t.Context(), sandboxmcp.Caller{}, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]string{"%pip install {kept}": "is not written in the cell", "%pip install " + secret: "the name of a package holds the secret TOKEN"} {
		if res := execute(t, e, in(id, code)); res.Success || !strings.Contains(res.Stderr, want) || strings.Contains(res.Stderr, secret) {
			t.Errorf("%s: got %s %q, want %q", code, res.Status, res.Stderr, want)
		}
	}
	for _, row := range rows(t, dir, "default") {
		if text := fmt.Sprintf("%+v", row); strings.Contains(text, secret) {
			t.Errorf("the record has the secret: %s", text)
		}
	}
}

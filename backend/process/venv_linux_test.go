package process_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestVirtualEnvironmentOfAProject: a virtual environment in a project's directory works in a
// sandbox, and the rest of that directory cannot be seen.
func TestVirtualEnvironmentOfAProject(t *testing.T) {
	const system = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), system, "-c", "import venv").Run(); err != nil {
		testkit.Need(t, "python", false, "no python that can make a virtual environment")
	}
	above, err := os.MkdirTemp("/var/tmp", "project") //nolint:usetesting // not below /tmp, which is every sandbox's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(above) })
	project := filepath.Join(above, "project")
	if out, err := exec.CommandContext(t.Context(), system, "-m", "venv", "--without-pip", project).CombinedOutput(); err != nil {
		t.Fatalf("make a virtual environment: got %v: %s, want no error", err, out)
	}
	packages, err := filepath.Glob(filepath.Join(project, "lib", "python3*", "site-packages"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("packages of the virtual environment: got %q, %v; want one directory", packages, err)
	}
	for name, text := range map[string]string{filepath.Join(packages[0], "own_package.py"): "says = 'own'\n", filepath.Join(project, ".env"): "SECRET=1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{above, project} {
		if err := os.Chmod(d, 0o755); err != nil { // a wall, not a mode, has to keep code out
			t.Fatal(err)
		}
	}
	var shown []string // what package runtimes has shown of one
	for _, name := range []string{"bin", "include", "lib", "pyvenv.cfg"} {
		shown = append(shown, filepath.Join(project, name))
	}
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	shows := spec("project")
	shows.Trees = backend.Trees(shown...)
	sb, err := b.Open(t.Context(), shows)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	const program = `
import os, sys
import own_package
print(own_package.says, sys.prefix == sys.argv[1])
try: print(open(sys.argv[1] + "/.env").read())
except OSError as e: print("shut")
`
	var out, errs bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{filepath.Join(project, "bin", "python3"), "-c", program, project}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "own True\nshut\n"; got != want {
		t.Errorf("got %q, want %q; stderr %q; shown %q", got, want, errs.String(), shown)
	}
}

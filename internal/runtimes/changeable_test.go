package runtimes_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/runtimes"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// link makes a symbolic link and returns its directory.
func link(t *testing.T, target, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(path)
}

// TestWhatProgramsCanChangeIsNotStarted: a program in a sandbox would otherwise put an interpreter there, and
// this package would start it outside of the sandbox.
func TestWhatProgramsCanChangeIsNotStarted(t *testing.T) {
	for name, c := range map[string]func(top, shared, count, good string) (path string){
		"Directory": func(_, shared, count, good string) string {
			return shim(t, shared+"/bin/node", good, "20.1.0", "", count)
		},
		"LinkedDirectory": func(top, shared, count, good string) string {
			shim(t, shared+"/bin/node", good, "20.1.0", "", count)
			return link(t, shared+"/bin", top+"/linked") + "/linked"
		},
		"LinkedFile": func(top, shared, count, good string) string {
			shim(t, shared+"/mine", good, "20.1.0", "", count)
			return link(t, "../shared/mine", top+"/own/node")
		},
		"LinkOnTheWay": func(top, shared, count, good string) string {
			shim(t, top+"/real", good, "20.1.0", "", count)
			link(t, top+"/real", shared+"/way")
			return link(t, shared+"/way", top+"/own/node")
		},
		"ProgramOfAShim": func(top, shared, count, good string) string {
			shim(t, shared+"/bin/helper", good, "20.1.0", "", count)
			return put(t, top+"/shims/node", "#!/usr/bin/env helper\n")
		},
		"Answer": func(top, shared, _, _ string) string {
			binary(t, shared+"/node/bin/node")
			return shim(t, top+"/shims/node", shared+"/node/bin/node", "20.1.0", "", top+"/allowed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			shared, count, good := top+"/shared", top+"/count", top+"/good/bin/node"
			binary(t, good)
			path := c(top, shared, count, good)
			for _, changeable := range []string{"", shared} {
				env := []string{"PATH=" + shared + "/bin:/usr/bin:/bin"}
				in, err := runtimes.New(runtimes.Config{Path: path, HomeEnv: env, Changeable: changeable}).Find(t.Context(), sandboxmcp.Node)
				if (err == nil) != (changeable == "") {
					t.Errorf("with %q to change: got %+v and %v", changeable, in, err)
				}
				if n := runs(t, count); changeable == "" && n == 0 && name != "Answer" {
					t.Error("got nothing started with nothing to change, want the interpreter") // then this test finds nothing
				} else if changeable != "" && n > 0 {
					t.Errorf("got %d processes started, want none", n)
				}
				_ = os.Remove(count)
			}
			others := shim(t, top+"/others/node", good, "20.1.0", "", top+"/allowed")
			in, err := runtimes.New(runtimes.Config{Path: path + ":" + others, HomeEnv: []string{"PATH=/usr/bin:/bin"}, Changeable: shared}).Find(t.Context(), sandboxmcp.Node)
			if err != nil || in.Path != good {
				t.Errorf("with another interpreter behind it: got %+v and %v, want that one", in, err)
			}
		})
	}
}

// TestPackagesDoNotRunWhenAPythonIsAsked: the packages of a virtual environment can name code that Python
// executes when it starts. It would run outside of the sandbox.
func TestPackagesDoNotRunWhenAPythonIsAsked(t *testing.T) {
	const system = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), system, "-c", "import venv").Run(); err != nil {
		testkit.Need(t, "python", false, "no python that can make a virtual environment")
	}
	top := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), system, "-m", "venv", "--without-pip", top+"/env").CombinedOutput(); err != nil {
		t.Fatalf("make a virtual environment: got %v: %s, want no error", err, out)
	}
	sites, err := filepath.Glob(top + "/env/lib/python3*/site-packages")
	if err != nil || len(sites) != 1 {
		t.Fatalf("got %q and %v, want one directory of packages", sites, err)
	}
	put(t, sites[0]+"/early.pth", "import os; os.mkdir('"+top+"/ran')\n")
	if err := exec.CommandContext(t.Context(), top+"/env/bin/python3", "-I", "-c", "").Run(); err != nil || os.Remove(top+"/ran") != nil {
		t.Fatalf("got %v and no directory, want the code of the package executed", err)
	}
	s := resolve(t, runtimes.Config{Path: top + "/env/bin"})
	in, err := s.Find(t.Context(), sandboxmcp.Python)
	if err != nil || !in.Virtual {
		t.Errorf("got %+v and %v, want the one of the virtual environment", in, err)
	}
	s.List(t.Context())
	if _, err := os.Stat(top + "/ran"); err == nil {
		t.Error("got the code of a package executed, want it left alone")
	}
}

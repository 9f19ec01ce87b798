package engine_test

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// plantSet puts a package set with some modules into a state directory, and returns where they
// are. One of them is of_a_set.
func plantSet(t *testing.T, state string, python environment.Python, modules map[string]string) (site string) {
	t.Helper()
	files := map[string]string{"of_a_set.py": "says = 'set'\n"}
	maps.Copy(files, modules)
	site, err := testkit.PackageSet{Tag: python.Tag(), Files: files}.Write(environment.Dir(state))
	if err != nil {
		t.Fatal(err)
	}
	return site
}

// withPython opens an engine on a state directory with a set for its Python.
func withPython(t *testing.T, modules map[string]string) *engine.Engine {
	t.Helper()
	return withPythonOn(t, modules)
}

// withPythonOn is withPython with changes of the engine.
func withPythonOn(t *testing.T, modules map[string]string, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	python := pythonOf(t, e)
	state := filepath.Join(t.TempDir(), "state")
	plantSet(t, state, python, modules)
	return openReal(t, append(change, at(state))...)
}

// pythonOf returns the Python of an engine.
func pythonOf(t *testing.T, e *engine.Engine) (python environment.Python) {
	t.Helper()
	for _, r := range languages(t, e) {
		if r.Language == sandboxmcp.Python {
			python = environment.Python{Path: r.Path, Version: r.Version}
		}
	}
	return python
}

// TestSessionImportsAhead: if the first cell of a session imports a package of a hashed set,
// the session is forked from an interpreter that has imported it. It behaves like one that
// imported it itself.
func TestSessionImportsAhead(t *testing.T) {
	t.Parallel()
	e := withPython(t, map[string]string{
		"pandas/__init__.py":     "import os\nimporter = (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns)\n",
		"numpy/__init__.py":      "from . import random\n",
		"numpy/random.py":        "import os\nseeded_by = []\ndef seed():\n    seeded_by.append(os.getpid())\n",
		"matplotlib/__init__.py": "import os\nfound = os.listdir(os.environ['MPLCONFIGDIR'])\n",
	})
	execute(t, e, in(create(t, e, sandboxmcp.SessionSpec{}), "1")) // which waits for the zygote of sessions
	zygotes := stats(e).Pool["zygotes"]
	testkit.Need(t, "zygote", zygotes > 0, "nothing is forked here")
	const cell = "import os, pandas, numpy, sys\nx = 1\nprint(pandas.importer != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns), numpy.random.seeded_by == [os.getpid()], sys.path[0] == '', 'matplotlib' in sys.modules)"
	deadline := time.Now().Add(time.Minute)
	for { // the set is hashed beside the first that ask
		id := create(t, e, sandboxmcp.SessionSpec{})
		res := execute(t, e, sandboxmcp.Request{SessionID: id, Code: cell})
		if res.Stdout == "True True True False\n" {
			for code, want := range map[string]string{
				"print(x, pandas.importer)":                           "", // whatever it is: the state is kept
				"import matplotlib; print(matplotlib.found)":          "['fontlist-v1.json']\n",
				"import of_a_set, sys; print(of_a_set.says)":          "set\n",
				"print([f for f in os.listdir('/proc/self/fd')][6:])": "[]\n",
			} {
				res = execute(t, e, sandboxmcp.Request{SessionID: id, Code: code})
				if res.Status != sandboxmcp.StatusCompleted || want != "" && res.Stdout != want {
					t.Errorf("%s: got %s, %q, %q; want completed and its output", code, res.Status, res.Stdout, res.Stderr)
				}
			}
			return
		}
		if res.Status != sandboxmcp.StatusCompleted || time.Now().After(deadline) {
			t.Fatalf("got %s, %q, %q", res.Status, res.Stdout, res.Stderr)
		}
		if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "test"}, id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRealSets: a package set is seen by programs, by interpreters that they
// start, and by those that a shell or node starts; in sessions too.
func TestRealSets(t *testing.T) {
	t.Parallel()
	e := withPython(t, nil)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell)
	for lang, code := range map[sandboxmcp.Language]string{
		sandboxmcp.Python: "import of_a_set, subprocess, sys\nfor python in sys.executable, 'python3':\n    subprocess.run([python, '-c', 'import of_a_set; print(of_a_set.says)'])\nNone",
		sandboxmcp.Node:   "const { execFileSync } = require('child_process')\nfor (let i = 0; i < 2; i++) console.log(execFileSync('python3', ['-c', 'import of_a_set; print(of_a_set.says)']).toString().trim())",
		sandboxmcp.Shell:  "echo 'import of_a_set; print(of_a_set.says)' > s.py; for i in 1 2; do python3 s.py; done",
	} {
		for what, req := range map[string]sandboxmcp.Request{
			"single":  {Language: lang, Code: code},
			"session": {Language: lang, Code: code, SessionID: create(t, e, sandboxmcp.SessionSpec{Language: lang})},
		} {
			if res := execute(t, e, req); res.Stdout != "set\nset\n" {
				t.Errorf("%s, %s: got %s, %q, %q", lang, what, res.Status, res.Stdout, res.Stderr)
			}
		}
	}
}

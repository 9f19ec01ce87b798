package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// plantSet puts a package set with some modules, whole as one that was installed,
// into a state directory, and returns where they are. One of them is of_a_set.
func plantSet(t *testing.T, state string, python environment.Python, modules map[string]string) (site string) {
	t.Helper()
	files := map[string]string{"site-packages/of_a_set.py": "says = 'set'\n"}
	for name, text := range modules {
		files["site-packages/"+name] = text
	}
	var listing strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&listing, "%x  %s\n", sha256.Sum256([]byte(files[name])), name)
	}
	hash := func(text []byte) string { sum := sha256.Sum256(text); return hex.EncodeToString(sum[:]) }
	m := environment.Manifest{Version: 1, Name: "science", Requested: []string{}, Python: environment.Built{Tag: python.Tag()}, Wheels: []environment.Wheel{}}
	m.Files.Count, m.Files.SHA256 = len(files), hash([]byte(listing.String()))
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	digest := hash(text)
	dir := filepath.Join(environment.Dir(state), digest)
	table, err := json.Marshal(map[string]any{"version": 1, "active": map[string]any{python.Tag(): map[string]string{"science": digest}}})
	err = errors.Join(err, os.MkdirAll(environment.Dir(state), 0o700), os.MkdirAll(filepath.Join(dir, "cache"), 0o755), os.WriteFile(filepath.Join(dir, "cache", "fontlist-v1.json"), nil, 0o444),
		os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o444), os.WriteFile(filepath.Join(dir, "files.sha256"), []byte(listing.String()), 0o444),
		os.WriteFile(filepath.Join(environment.Dir(state), "python.json"), table, 0o600))
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "site-packages")
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
	var python environment.Python
	for _, r := range languages(t, e) {
		if r.Language == sandboxmcp.Python {
			python = environment.Python{Path: r.Path, Version: r.Version}
		}
	}
	state := filepath.Join(t.TempDir(), "state")
	plantSet(t, state, python, modules)
	return openReal(t, append(change, at(state))...)
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

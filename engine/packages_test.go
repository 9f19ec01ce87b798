package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// plantSet puts a package set with one module, of_a_set, into a state directory.
func plantSet(t *testing.T, state string, python environment.Python) {
	t.Helper()
	m := environment.Manifest{Version: 1, Name: "science", Requested: []string{}, Python: environment.Built{Tag: python.Tag()}, Wheels: []environment.Wheel{}}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:])
	dir := filepath.Join(environment.Dir(state), digest)
	table, err := json.Marshal(map[string]any{"version": 1, "active": map[string]any{python.Tag(): map[string]string{"science": digest}}})
	err = errors.Join(err, os.MkdirAll(environment.Dir(state), 0o700), os.MkdirAll(filepath.Join(dir, "site-packages"), 0o755), os.Mkdir(filepath.Join(dir, "cache"), 0o755),
		os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o444), os.WriteFile(filepath.Join(environment.Dir(state), "python.json"), table, 0o600),
		os.WriteFile(filepath.Join(dir, "site-packages", "of_a_set.py"), []byte("says = 'set'\n"), 0o444))
	if err != nil {
		t.Fatal(err)
	}
}

// TestRealSets: a package set is seen by programs, by interpreters that they
// start, and by those that a shell or node starts; in sessions too.
func TestRealSets(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell)
	var python environment.Python
	for _, r := range e.Runtimes(t.Context()).Runtimes {
		if r.Language == sandboxmcp.Python {
			python = environment.Python{Path: r.Path, Version: r.Version}
		}
	}
	state := filepath.Join(t.TempDir(), "state")
	plantSet(t, state, python)
	e = openReal(t, at(state))
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

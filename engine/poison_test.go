package engine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// importing is a package that tells where it was imported: in the program's own
// process, or before there was one.
const importing = "import os, random, tempfile\nat, says, drawn = os.getpid(), 'good', next(tempfile._get_candidate_names())\n"

// preloadedBy runs programs that import pandas until one has found it imported;
// what it said, or what the last one did.
func preloadedBy(t *testing.T, run func(sandboxmcp.Request) sandboxmcp.Result) (said string, ahead bool) {
	t.Helper()
	r := sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas\nimport os\nprint(pandas.at != os.getpid(), pandas.says)"}
	for range 12 {
		res := run(r)
		where, says, ok := strings.Cut(strings.TrimSpace(res.Stdout), " ")
		if !ok {
			t.Fatalf("%s %q %q", res.Status, res.Stdout, res.Stderr)
		}
		if said = says; where == "True" {
			return said, true
		}
		time.Sleep(50 * time.Millisecond) // for what is done beside
	}
	return said, false
}

// plantWhole puts a package set into a state directory whose files are what its
// manifest says: pandas and numpy, such as they are.
func plantWhole(t *testing.T, state string, python environment.Python) (site string) {
	t.Helper()
	hashOf := func(b []byte) string {
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	var files strings.Builder
	names := []string{"numpy.py", "pandas.py"}
	for _, name := range names {
		files.WriteString(hashOf([]byte(importing)) + "  site-packages/" + name + "\n")
	}
	m := environment.Manifest{Version: 1, Name: "science", Requested: []string{}, Python: environment.Built{Tag: python.Tag()}, Wheels: []environment.Wheel{}}
	m.Files.Count, m.Files.Bytes, m.Files.SHA256 = len(names), int64(len(names)*len(importing)), hashOf([]byte(files.String()))
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	digest := hashOf(text)
	dir := filepath.Join(environment.Dir(state), digest)
	site = filepath.Join(dir, "site-packages")
	table, err := json.Marshal(map[string]any{"version": 1, "active": map[string]any{python.Tag(): map[string]string{"science": digest}}})
	err = errors.Join(err, os.MkdirAll(environment.Dir(state), 0o700), os.MkdirAll(site, 0o755), os.Mkdir(filepath.Join(dir, "cache"), 0o755),
		os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o444), os.WriteFile(filepath.Join(dir, "files.sha256"), []byte(files.String()), 0o444),
		os.WriteFile(filepath.Join(environment.Dir(state), "python.json"), table, 0o600))
	for _, name := range names {
		err = errors.Join(err, os.WriteFile(filepath.Join(site, name), []byte(importing), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return site
}

// TestPoisonedPackages: nothing of a package set is imported outside of a sandbox
// but what was hashed, whenever it was changed. A program that imports it itself,
// behind its own walls, gets what is there.
func TestPoisonedPackages(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	var python environment.Python
	for _, r := range e.Runtimes(t.Context()).Runtimes {
		if r.Language == sandboxmcp.Python {
			python = environment.Python{Path: r.Path, Version: r.Version}
		}
	}
	// The same length and the same time.
	poison := func(t *testing.T, site string) {
		t.Helper()
		name := filepath.Join(site, "pandas.py")
		info, err := os.Stat(name)
		if err == nil {
			err = errors.Join(os.WriteFile(name, bytes.ReplaceAll([]byte(importing), []byte("good"), []byte("evil")), 0o644), os.Chtimes(name, info.ModTime(), info.ModTime()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(t *testing.T) (site string, run func(sandboxmcp.Request) sandboxmcp.Result) {
		t.Helper()
		state := filepath.Join(t.TempDir(), "state")
		site = plantWhole(t, state, python)
		e := openReal(t, at(state))
		return site, func(r sandboxmcp.Request) sandboxmcp.Result { return execute(t, e, r) }
	}
	t.Run("Whole", func(t *testing.T) {
		_, run := open(t)
		said, ahead := preloadedBy(t, run)
		testkit.Need(t, "zygote", ahead, "nothing is imported ahead here, so that nothing can be poisoned")
		if said != "good" {
			t.Errorf("it says %q", said)
		}
	})
	t.Run("ForksDrawTheirOwnLots", func(t *testing.T) {
		_, run := open(t)
		_, ahead := preloadedBy(t, run)
		testkit.Need(t, "zygote", ahead, "nothing is imported ahead here")
		seen := map[string]bool{}
		for range 6 {
			res := run(sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas\nimport os, random, tempfile, uuid, secrets\nprint(pandas.at != os.getpid())\nprint(random.random(), next(tempfile._get_candidate_names()), uuid.uuid4(), secrets.token_hex(8), random.Random().random(), sep='\\n')"})
			where, lots, _ := strings.Cut(res.Stdout, "\n")
			if where != "True" {
				t.Fatalf("it was not imported ahead: %q %q", res.Stdout, res.Stderr)
			}
			for lot := range strings.FieldsSeq(lots) {
				if seen[lot] {
					t.Errorf("two forks drew %s", lot)
				}
				seen[lot] = true
			}
		}
		if len(seen) != 30 {
			t.Errorf("%d lots were drawn, want 30", len(seen))
		}
	})
	t.Run("BeforeTheFirstRun", func(t *testing.T) {
		site, run := open(t)
		poison(t, site)
		if said, ahead := preloadedBy(t, run); ahead || said != "evil" {
			t.Errorf("imported ahead: %v, %q", ahead, said)
		}
	})
	t.Run("AfterItWasHashed", func(t *testing.T) {
		site, run := open(t)
		run(sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas"}) // has it hashed
		time.Sleep(300 * time.Millisecond)                                          // by now; nothing was imported yet
		poison(t, site)
		if said, ahead := preloadedBy(t, run); ahead || said != "evil" {
			t.Errorf("imported ahead: %v, %q", ahead, said)
		}
	})
	for name, mode := range map[string]fs.FileMode{"OpenToOthers": 0o666, "OpenToAGroup": 0o664} {
		t.Run(name, func(t *testing.T) {
			site, run := open(t)
			if err := os.Chmod(filepath.Join(site, "numpy.py"), mode); err != nil {
				t.Fatal(err)
			}
			if said, ahead := preloadedBy(t, run); ahead || said != "good" {
				t.Errorf("imported ahead: %v, %q", ahead, said)
			}
		})
	}
	for name, spoil := range map[string]func(site string) error{
		"Pth": func(site string) error {
			return os.WriteFile(filepath.Join(site, "a.pth"), []byte("import os; os.environ['X'] = 'y'\n"), 0o644)
		},
		"SiteCustomize": func(site string) error {
			return os.WriteFile(filepath.Join(site, "sitecustomize.py"), []byte(importing), 0o644)
		},
		"Link": func(site string) error { return os.Symlink("pandas.py", filepath.Join(site, "seaborn.py")) },
	} {
		t.Run(name, func(t *testing.T) {
			site, run := open(t)
			if err := spoil(site); err != nil {
				t.Fatal(err)
			}
			if said, ahead := preloadedBy(t, run); ahead || said != "good" {
				t.Errorf("imported ahead: %v, %q", ahead, said)
			}
		})
	}
}

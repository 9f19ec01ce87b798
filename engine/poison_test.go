package engine_test

import (
	"bytes"
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
// sandbox, or in another.
const importing = "import os, random, tempfile\nat, says, drawn = (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns), 'good', next(tempfile._get_candidate_names())\n"

// preloadedBy runs programs that import pandas until one finds it imported ahead, at most 12.
// It returns what the last one said, and whether it was imported ahead.
func preloadedBy(t *testing.T, run func(sandboxmcp.Request) sandboxmcp.Result) (said string, ahead bool) {
	t.Helper()
	r := sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas\nimport os\nprint(pandas.at != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns), pandas.says)"}
	for range 12 {
		res := run(r)
		where, says, ok := strings.Cut(strings.TrimSpace(res.Stdout), " ")
		if !ok {
			t.Fatalf("got %s %q %q, want where the package was imported and what it says", res.Status, res.Stdout, res.Stderr)
		}
		if said = says; where == "True" {
			return said, true
		}
		time.Sleep(50 * time.Millisecond) // time for the import in the background; a test may expect that there is none
	}
	return said, false
}

// TestPoisonedPackages: code of a package set is imported ahead only if it is what was hashed,
// whenever it was changed. A program that imports it itself, in its own sandbox, gets the
// changed code.
func TestPoisonedPackages(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	var python environment.Python
	for _, r := range languages(t, e) {
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
		site = plantSet(t, state, python, map[string]string{"numpy.py": importing, "pandas.py": importing})
		e := openReal(t, at(state))
		return site, func(r sandboxmcp.Request) sandboxmcp.Result { return execute(t, e, r) }
	}
	t.Run("Whole", func(t *testing.T) {
		_, run := open(t)
		said, ahead := preloadedBy(t, run)
		testkit.Need(t, "zygote", ahead, "nothing is imported ahead here, so that nothing can be poisoned")
		if said != "good" {
			t.Errorf("the package: got %q, want good", said)
		}
	})
	t.Run("ForksDrawTheirOwnLots", func(t *testing.T) {
		_, run := open(t)
		_, ahead := preloadedBy(t, run)
		testkit.Need(t, "zygote", ahead, "nothing is imported ahead here")
		seen := map[string]bool{}
		for range 6 {
			res := run(sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas\nimport os, random, tempfile, uuid, secrets\nprint(pandas.at != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns))\nprint(random.random(), next(tempfile._get_candidate_names()), uuid.uuid4(), secrets.token_hex(8), random.Random().random(), sep='\\n')"})
			where, lots, _ := strings.Cut(res.Stdout, "\n")
			if where != "True" {
				t.Fatalf("got %q %q, want the package imported ahead", res.Stdout, res.Stderr)
			}
			for lot := range strings.FieldsSeq(lots) {
				if seen[lot] {
					t.Errorf("got %s from two forks, want a number of its own for each", lot)
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
			t.Errorf("got imported ahead %v, %q; want false, evil", ahead, said)
		}
	})
	t.Run("AfterItWasHashed", func(t *testing.T) {
		site, run := open(t)
		run(sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas"}) // has it hashed
		time.Sleep(300 * time.Millisecond)                                          // nothing shows that the hash is taken; the import comes only at a later run
		poison(t, site)
		if said, ahead := preloadedBy(t, run); ahead || said != "evil" {
			t.Errorf("got imported ahead %v, %q; want false, evil", ahead, said)
		}
	})
	for name, mode := range map[string]fs.FileMode{"OpenToOthers": 0o666, "OpenToAGroup": 0o664} {
		t.Run(name, func(t *testing.T) {
			site, run := open(t)
			if err := os.Chmod(filepath.Join(site, "numpy.py"), mode); err != nil {
				t.Fatal(err)
			}
			if said, ahead := preloadedBy(t, run); ahead || said != "good" {
				t.Errorf("got imported ahead %v, %q; want false, good", ahead, said)
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
				t.Errorf("got imported ahead %v, %q; want false, good", ahead, said)
			}
		})
	}
}

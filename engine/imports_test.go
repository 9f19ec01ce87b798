package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestPackageCodeReachesNoNeighbor has a package of a set attack when it is
// imported ahead: what it finds is its own sandbox, and nothing of it stays.
func TestPackageCodeReachesNoNeighbor(t *testing.T) {
	t.Setenv("CANARY_OF_THE_SERVER", "canary-secret")
	e := withPython(t, map[string]string{"numpy.py": testkit.Hostile(t, "package-spies.py"), "pandas.py": ""})
	for _, ns := range []sandboxmcp.Namespace{"default", "other"} {
		r := in(create(t, e, sandboxmcp.SessionSpec{}, of(ns)), "open('canary.txt', 'w').write('secret')\nopen('/tmp/canary.txt', 'w').write('secret')\nimport os; os.environ['A'] = 'canary'")
		if res := execute(t, e, r, of(ns)); res.Status != sandboxmcp.StatusCompleted {
			t.Fatalf("neighbor: got %s %q, want completed", res.Status, res.Stderr)
		}
	}
	const program = "import numpy, os\nprint(numpy.at != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns))\nprint(numpy.found)\nprint(sorted(os.listdir('/proc/self/fd'))[:-1])"
	descriptors := map[string]string{"OneShot": "['0', '1', '2', '3']", "Session": "['0', '1', '2', '3', '4']"}
	for what, run := range map[string]func() sandboxmcp.Result{
		"OneShot": func() sandboxmcp.Result {
			return execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: program})
		},
		"Session": func() sandboxmcp.Result {
			id := create(t, e, sandboxmcp.SessionSpec{})
			res := execute(t, e, in(id, program))
			if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "test"}, id); err != nil {
				t.Error(err)
			}
			return res
		},
	} {
		t.Run(what, func(t *testing.T) {
			deadline := time.Now().Add(time.Minute)
			for {
				res := run()
				ahead, found, _ := strings.Cut(res.Stdout, "\n")
				if want := "[]\n" + descriptors[what] + "\n"; found != want && ahead == "True" {
					t.Fatalf("the package found %s, want %s %s", found, want, res.Stderr)
				}
				if ahead == "True" {
					break
				}
				testkit.Need(t, "zygote", time.Now().Before(deadline), "nothing is imported ahead here: "+res.Stdout+res.Stderr)
			}
			testkit.UntilEqual(t, "live processes that the import started", "[]", func() string { return fmt.Sprint(named(t, "canary-stays")) })
		})
	}
}

// named lists the processes of the machine that have a name.
func named(t *testing.T, name string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == name {
			pids = append(pids, path)
		}
	}
	return pids
}

// notAlike are programs of forkPrograms that tell which modules were imported: numpy is, with all
// that it imports, where a program asks for pandas alone.
var notAlike = map[string]bool{"Modules": true, "Path": true, "ShadowOfOurs": true}

// TestImportedAheadIsWhatACallerSees runs the same programs where packages are
// imported ahead and where each program is executed and imports them.
func TestImportedAheadIsWhatACallerSees(t *testing.T) {
	const where = "import os\nat = (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns)\n"
	modules := map[string]string{"numpy.py": "import threading, ctypes, subprocess, logging, multiprocessing.util, ssl, faulthandler\n", "pandas.py": where}
	e := withPython(t, modules)
	plain := withPythonOn(t, modules, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends = []backend.Backend{process.New(process.Config{NoPool: true})}
	})
	ahead := func() bool {
		res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas, os\nprint(pandas.at != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns))"})
		return res.Stdout == "True\n"
	}
	for end := time.Now().Add(time.Minute); !ahead(); {
		testkit.Need(t, "zygote", time.Now().Before(end), "nothing is imported ahead here")
	}
	for name, code := range forkPrograms {
		if notAlike[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := sandboxmcp.Request{Code: "import pandas; del pandas\n" + code, Language: sandboxmcp.Python}
			want, got := seen(execute(t, plain, r)), seen(execute(t, e, r))
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("a program whose packages were imported ahead is another than an executed one (-executed +ahead):\n%s", diff)
			}
		})
	}
	if !ahead() {
		t.Error("after all programs: got nothing imported ahead, want it still, or nothing was compared")
	}
}

// TestSessionImportedAheadIsWhatACallerSees does the same with cells.
func TestSessionImportedAheadIsWhatACallerSees(t *testing.T) {
	modules := map[string]string{"numpy.py": "", "pandas.py": "import os\nat = (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns)\n"}
	const tasks = 2 * 100 * 160 // for all sessions, whatever this machine has
	many := func(c *engine.Config) { c.MaxSessions = 100 }
	forking := func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends = []backend.Backend{process.New(process.Config{MaxTasks: tasks})}
	}
	e := withPythonOn(t, modules, forking, many)
	plain := withPythonOn(t, modules, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends = []backend.Backend{process.New(process.Config{NoPool: true, MaxTasks: tasks})}
	}, many)
	const first = "import pandas, os\nprint(pandas.at != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns))\ndel pandas, os"
	ahead := func(id sandboxmcp.SessionID) bool {
		return execute(t, e, sandboxmcp.Request{SessionID: id, Code: first}).Stdout == "True\n"
	}
	for end := time.Now().Add(time.Minute); !ahead(create(t, e, sandboxmcp.SessionSpec{})); {
		testkit.Need(t, "zygote", time.Now().Before(end), "nothing is imported ahead here")
	}
	for name, cells := range forkCells {
		if name == "Start" || name == "Site" { // which modules there are
			continue
		}
		t.Run(name, func(t *testing.T) {
			executed, forked := create(t, plain, sandboxmcp.SessionSpec{}), create(t, e, sandboxmcp.SessionSpec{})
			cell(t, plain, executed, first)
			if !ahead(forked) {
				t.Fatal("got packages imported by the program, want them imported ahead")
			}
			for _, code := range cells {
				a, b := cell(t, plain, executed, code), cell(t, e, forked, code)
				if diff := cmp.Diff(strings.Split(seen(a), "\n"), strings.Split(seen(b), "\n")); diff != "" || a.StateLost != b.StateLost {
					t.Errorf("%s\n(-executed +ahead; lost %v, %v):\n%s", code, a.StateLost, b.StateLost, diff)
				}
			}
		})
	}
}

// TestGeneratorsDifferBetweenForks: what was seeded when packages were imported is
// seeded anew in every fork.
func TestGeneratorsDifferBetweenForks(t *testing.T) {
	e := withPython(t, map[string]string{
		"pandas.py":         "import os, random, tempfile, uuid, ssl, multiprocessing.process\nat = (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns)\ndrawn = next(tempfile._get_candidate_names()), uuid.uuid1(), ssl.RAND_bytes(4), random.random()\n",
		"numpy/__init__.py": "from . import random\n",
		"numpy/random.py":   "import random\nstate = random.Random()\ndef seed():\n    state.seed()\nrand = state.random\n",
	})
	const draws = `
import pandas, numpy, os, random, ssl, secrets, tempfile, uuid, multiprocessing
print(pandas.at != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns))
print(numpy.random.rand(), random.random(), random.Random().random(), random.SystemRandom().random(), ssl.RAND_bytes(8).hex(), secrets.token_hex(8), next(tempfile._get_candidate_names()),
      uuid.uuid4(), uuid.uuid1(), bytes(multiprocessing.current_process().authkey).hex(), os.urandom(8).hex(), sep='\n')`
	for what, run := range map[string]func() sandboxmcp.Result{
		"OneShot": func() sandboxmcp.Result {
			return execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: draws})
		},
		"Session": func() sandboxmcp.Result {
			id := create(t, e, sandboxmcp.SessionSpec{})
			res := execute(t, e, in(id, draws))
			if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "test"}, id); err != nil {
				t.Error(err)
			}
			return res
		},
	} {
		t.Run(what, func(t *testing.T) {
			seen, forks := map[string]bool{}, 0
			for end := time.Now().Add(time.Minute); forks < 4; {
				res := run()
				where, lots, _ := strings.Cut(res.Stdout, "\n")
				if where == "True" {
					forks++
				}
				testkit.Need(t, "zygote", time.Now().Before(end), "nothing is imported ahead here")
				for lot := range strings.FieldsSeq(lots) {
					if seen[lot] {
						t.Errorf("got %s from two processes, want a number of its own for each", lot)
					}
					seen[lot] = true
				}
				if len(strings.Fields(lots)) != 11 {
					t.Fatalf("got %q %q, want 11 draws", res.Stdout, res.Stderr)
				}
			}
		})
	}
}

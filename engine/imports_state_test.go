package engine_test

import (
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

// changing is a package whose import changes the process, and not only its memory.
const changing = `
import atexit, faulthandler, logging, os, signal, threading, weakref
class Kept:
    pass
kept = Kept()
weakref.finalize(kept, print, 'finalizer of the package')
atexit.register(print, 'handler of the package')
faulthandler.enable()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.signal(signal.SIGUSR1, lambda *_: print('signal of the package'))
os.environ['SET_BY_PACKAGE'] = 'new'
os.environ.setdefault('GIVEN', 'of the package')
os.environ['OMP_NUM_THREADS'] = '7'
os.environ.pop('MKL_NUM_THREADS', None)
`

var afterChanges = map[string]string{
	"Environment": "import os, subprocess\nfor n in 'SET_BY_PACKAGE', 'GIVEN', 'OMP_NUM_THREADS', 'MKL_NUM_THREADS':\n    print(os.environ.get(n), subprocess.run(['printenv', n], capture_output=True).stdout)",
	"Exit":        "import logging, logging.handlers, sys, weakref\nh = logging.handlers.MemoryHandler(1000, target=logging.StreamHandler(sys.stdout))\nlogging.getLogger('a').addHandler(h)\nlogging.getLogger('a').warning('a line that waits')\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalizer')",
	"ExitStatus":  "import atexit, sys\natexit.register(print, 'one')\natexit.register(print, 'two')\nsys.exit(3)",
	"Raises":      "import atexit\natexit.register(print, 'one')\n1 / 0",
	"Signals":     "import os, signal\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []))\nos.kill(os.getpid(), signal.SIGUSR1)\nos.kill(os.getpid(), signal.SIGUSR2)\nprint(signal.sigpending())",
	"MainThread":  "import os, threading\nprint(threading.main_thread().native_id == os.getpid(), threading.get_native_id() == os.getpid())",
	"Overflow":    "import ctypes\nlibc, size = ctypes.CDLL(None), ctypes.c_ulong * 3\nstack = size()\nprint(libc.sigaltstack(None, stack), stack[0] != 0, stack[2] > 0)",
}

// TestWhatAnImportChangesIsThere: a program whose packages were imported ahead finds the
// environment, handlers and signals as they are after an import of its own.
func TestWhatAnImportChangesIsThere(t *testing.T) {
	modules := map[string]string{"numpy.py": changing, "pandas.py": "import os, numpy\nat = (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns)\n"}
	e := withPython(t, modules)
	plain := withPythonOn(t, modules, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends = []backend.Backend{process.New(process.Config{NoPool: true})}
	})
	const program = "import pandas, os\nprint(pandas.at != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns))\n"
	run := func(t *testing.T, e *engine.Engine, code string) (ahead bool, is string) {
		t.Helper()
		res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: program + code, Env: map[string]string{"GIVEN": "of the program"}})
		first, rest, _ := strings.Cut(res.Stdout, "\n")
		res.Stdout = rest
		return first == "True", seen(res)
	}
	for end := time.Now().Add(time.Minute); ; {
		if ahead, _ := run(t, e, ""); ahead {
			break
		}
		testkit.Need(t, "zygote", time.Now().Before(end), "nothing is imported ahead here")
	}
	for name, code := range afterChanges {
		t.Run(name, func(t *testing.T) {
			_, want := run(t, plain, code)
			ahead, got := run(t, e, code)
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" || !ahead {
				t.Errorf("ahead %v; it is another than an executed one (-executed +ahead):\n%s", ahead, diff)
			}
		})
	}
}

// counting is a package whose tables count how many were made, and can be used as those of pandas.
const counting = `
import os, threading
at = (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns)
made = 0
class DataFrame:
    def __init__(self, data):
        global made
        made += 1
        first()
    def __getattr__(self, name): return self
    def __getitem__(self, key): return self
    def __call__(self): return self
    def __gt__(self, other): return self
    def groupby(self, name): return self
    def __str__(self): return 'a table'
`

// TestFirstTablesAreMadeAhead: packages are used before their memory is saved, so that the first program finds caches filled. If that
// would start a thread, give a warning or fail, they are imported ahead all the same, and are not used.
func TestFirstTablesAreMadeAhead(t *testing.T) {
	for name, c := range map[string]struct{ first, want string }{
		"Quiet":   {"pass", "True"},
		"Threads": {"threading.Thread(target=threading.Event().wait, daemon=True).start()", "False"},
		"Warns":   {"import warnings; warnings.warn('of the package')", "False"},
		"Fails":   {"raise ValueError", "False"},
	} {
		t.Run(name, func(t *testing.T) {
			e := withPython(t, map[string]string{"numpy.py": "def ones(n): return [1.0] * n\n", "pandas.py": counting + "def first(): " + c.first + "\n"})
			const program = "import os, pandas\nprint(pandas.at != (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns), pandas.made > 1)"
			for end := time.Now().Add(time.Minute); ; {
				ahead, made, _ := strings.Cut(strings.TrimSpace(execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: program}).Stdout), " ")
				if ahead == "True" {
					if made != c.want {
						t.Errorf("tables were made ahead: got %s, want %s", made, c.want)
					}
					return
				}
				testkit.Need(t, "zygote", time.Now().Before(end), "nothing is imported ahead here")
			}
		})
	}
}

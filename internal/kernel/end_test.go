package kernel_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// TestPythonEndsAsThePlainInterpreter: the driver ends the process itself after some programs. What a program leaves to the
// end of the interpreter happens nevertheless.
func TestPythonEndsAsThePlainInterpreter(t *testing.T) {
	programs := map[string]string{
		"deleted unseen":      "class A(int):\n    __slots__ = ()\n    def __del__(self): print('del', int(self))\na = A(7)",
		"deleted with error":  "class A:\n    def __del__(self): raise ValueError('late')\nimport builtins\nbuiltins.a = A()",
		"generator left open": "def f():\n    try:\n        yield\n    finally:\n        print('closed')\ng = f()\nnext(g)",
		"coroutine not run":   "async def f(): pass\nc = f()",
		"weak callback":       "import weakref\nclass A: pass\na = A()\nr = weakref.ref(a, lambda r: print('gone'))\nprint(end='part')",
		"metaclass":           "class M(type):\n    def __getattr__(self, name): print('asked', name)\n    def __del__(self): print('class gone')\nclass A(metaclass=M): pass\na = A()",
		"text of C":           "import ctypes\nctypes.CDLL(None).printf(b'buffered')\nimport sys\ndel sys.modules['ctypes'], sys.modules['_ctypes']",
		"unclosed directory":  "import os, warnings\nwarnings.simplefilter('always')\nd = os.scandir('/')\nnext(d)",
		"traced to the end":   "import sys\nsys.settrace(lambda frame, event, arg: sys.stderr.write(frame.f_code.co_name))",
		"statistics at end":   "import gc\ngc.set_debug(gc.DEBUG_UNCOLLECTABLE)\nclass A: pass\ngc.garbage.append(A())",
		"partial line":        "import sys\nprint('a', end='')\nprint('b', end='', file=sys.stderr)",
		"stream in place":     "import sys\nprint('a', end='')\nsys.stdout = open('f.txt', 'w')\nprint('b')",
		"full output":         "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('lost')",
		"output gone":         "import os\nprint('a', end='')\nos.close(1)",
		"many objects":        "a = [[i] for i in range(20000)]\nprint(len(a))",
		"at exit":             "import atexit, sys\natexit.register(print, 'bye')\ndel sys.modules['atexit']",
		"thread":              "import _thread, threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('late'))).start()\ndel threading",
		"file left open":      "f = open('f.txt', 'w')\nf.write('kept')\nprint('a', end='')",
		"cycle":               "class A:\n    def __del__(self): print('del')\na = A()\na.a = a",
		"on a module":         "class A:\n    def __del__(self): open('f.txt', 'w').write('x')\nimport sys\nsys.mine = A()",
		"child":               "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('both')",
		"nothing":             "import json, re, os\nprint(json.dumps({'a': re.sub('b', 'c', 'b')}), os.getcwd() != '')",
	}
	eachPython(t, func(t *testing.T, python string) {
		version := knownVersion(t, python)
		for name, code := range programs {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				at := places{t.TempDir(), t.TempDir()}
				got, want := runIn(t, kernel.Program{Code: code, Interpreter: python, Version: version}, at), plain(t, python, code)
				for _, c := range []struct{ what, got, want string }{
					{"stdout", got.Stdout, want.Stdout},
					{"stderr", got.Stderr, want.Stderr},
					{"exit", fmt.Sprint(got.Code, got.Signal), fmt.Sprint(want.Code, want.Signal)},
				} {
					if d := cmp.Diff(address.ReplaceAllString(c.want, "0x"), address.ReplaceAllString(c.got, "0x")); d != "" {
						t.Errorf("%s (-plain +ours) %s", c.what, d)
					}
				}
			})
		}
	})
}

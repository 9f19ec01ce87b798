package kernel_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// pythons are the interpreters to try: the system's, and those of KERNEL_TEST_PYTHONS.
func pythons(t *testing.T) []string {
	t.Helper()
	var all []string
	if p, err := exec.LookPath("/usr/bin/python3"); err == nil {
		all = append(all, p)
	} else if p, err := exec.LookPath("python3"); err == nil {
		all = append(all, p)
	}
	all = append(all, strings.Fields(os.Getenv("KERNEL_TEST_PYTHONS"))...)
	if len(all) == 0 {
		t.Skip("no python3 here")
	}
	return all
}

func eachPython(t *testing.T, f func(t *testing.T, python string)) {
	for _, p := range pythons(t) {
		t.Run(filepath.Base(filepath.Dir(filepath.Dir(p))), func(t *testing.T) { f(t, p) })
	}
}

// plain runs a program as a person would, to compare with.
func plain(t *testing.T, python, code string) outcome {
	t.Helper()
	at := places{t.TempDir(), t.TempDir()}
	main := filepath.Join(at.program, "main.py")
	if err := os.WriteFile(main, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, main)
	cmd.Dir, cmd.Env = at.work, []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp"}
	var out, err strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &err
	_ = cmd.Run()
	r := strings.NewReplacer(at.program, "/run/program", at.work, "/mnt/data")
	o := outcome{Stdout: r.Replace(out.String()), Stderr: r.Replace(err.String()), Code: cmd.ProcessState.ExitCode()}
	if o.Code == -1 {
		o.Signal = cmd.ProcessState.String()
	}
	return o
}

// What differs from one run to the next; and how deep a recursion gets, for ours begins a few frames deeper.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}|\d+ more times`)

// Whatever a program does, it ends as under the plain interpreter: same output,
// same words on stderr, same exit. So it does with a compiled driver.
func TestPythonIsThePlainInterpreter(t *testing.T) {
	programs := map[string]string{
		"print":               "print(1)",
		"value without print": "1+1",
		"exception":           "def f():\n    raise ValueError('boom')\nprint('a')\nf()",
		"chained":             "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
		"in context":          "try:\n    1/0\nexcept ZeroDivisionError:\n    undefined",
		"exit 3":              "import sys; sys.exit(3)",
		"exit text":           "import sys; print('o'); sys.exit('words')",
		"exit none":           "raise SystemExit",
		"exit in thread":      "import threading,sys\nt=threading.Thread(target=lambda: sys.exit(4)); t.start(); t.join(); print('on')",
		"interrupt":           "raise KeyboardInterrupt",
		"syntax":              "x = 1\nprint(\n",
		"indent":              "if 1:\n  a\n b",
		"tabs":                "if 1:\n\tx=1\n        y=2\n",
		"nul late":            "print(1)\nx = 'a'\nexec('a\\0b')",
		"coding":              "# coding: latin-1\nprint(ascii('\xe4'))",
		"future":              "from __future__ import annotations\ndef f(x: undefined): pass\nprint(f.__annotations__)",
		"docstring":           "'words'\nprint(__doc__)",
		"names":               "print(__name__, __file__, __package__, __spec__, sorted(n for n in globals() if n != '__annotations__'))",
		"argv":                "import sys; print(sys.argv)",
		"main guard":          "if __name__ == '__main__': print('main')",
		"atexit":              "import atexit; atexit.register(print, 'bye'); 1/0",
		"threads joined":      "import threading,time\nthreading.Thread(target=lambda: (time.sleep(.1), print('late'))).start()\nraise ValueError",
		"thread exception":    "import threading\nt=threading.Thread(target=lambda: 1/0, name='T'); t.start(); t.join()",
		"warning":             "import warnings\nwarnings.warn('careful')\ndef f(): warnings.warn('caller', stacklevel=2)\nf()",
		"warning of nobody":   "import warnings\nwarnings.warn('outside', stacklevel=2)",
		"syntax warning":      "x = 1\nprint(x is 1)",
		"bad escape":          "print(len('\\d'))",
		"own excepthook":      "import sys, traceback\ndef hook(t, v, tb):\n    print('hook', t.__name__, v, [f.name for f in traceback.extract_tb(tb)])\nsys.excepthook = hook\nraise ValueError('x')",
		"untouched hooks":     "import sys; print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)",
		"last traceback":      "import sys, atexit\natexit.register(lambda: print(sys.last_traceback.tb_frame.f_code.co_filename))\n1/0",
		"source":              "import inspect\ndef f():\n    return 1  # here\nprint(inspect.getsource(f), inspect.getsourcefile(f))",
		"pickle":              "import pickle\nclass A:\n    x = 1\nprint(pickle.loads(pickle.dumps(A)).__module__, pickle.loads(pickle.dumps(A())).x)",
		"dataclass":           "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1\nprint(P())",
		"namedtuple":          "from collections import namedtuple\nprint(namedtuple('N', 'a').__module__)",
		"asyncio":             "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nprint(asyncio.run(f()))",
		"input":               "input()",
		"fork":                "import os, sys\npid = os.fork()\nif pid == 0:\n    raise ValueError('child')\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if hasattr(os, 'waitstatus_to_exitcode') else 1)",
		"processes forked":    "import multiprocessing as m\ndef f(x): return x*x\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, [1,2,3]))",
		"processes spawned":   "import multiprocessing as m\ndef f(x): return x*x\nif __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1,2,3]))",
		"recursion":           "def f(): f()\nf()",
		"shadowed builtins":   "exec = compile = open = type = Exception = SystemExit = BaseException = None\nprint('x')\n1/0",
		"channel closed":      "import os\nos.close(3) if os.path.exists('/proc/self/fd/3') else None\nf = open('f', 'w')\nprint(1/0 if f.closed else 'open')\nraise ValueError",
		"own signal":          "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
		"broken str":          "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E",
		"exception class":     "raise ZeroDivisionError",
		"no stdout":           "import sys\nsys.stdout = None\nprint('gone')\nraise ValueError('v')",
		"stdout closed":       "import sys\nsys.stdout.close()",
		"file left open":      "f = open('f.txt', 'w')\nf.write('kept')\nimport atexit, os\nprint(os.path.getsize('f.txt'))",
		"deleted at the end":  "class A:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('del', self.n)\na = A('global')\nb = A('cycle')\nb.b = b\nimport sys\nsys.mine = A('on a module')",
		"module of ours":      "import sys\nprint([m for m in ('json', 'ast', 'traceback', 'linecache', 'tokenize') if m in sys.modules])",
		"empty":               "",
		"no last newline":     "x = '''a\nb'''\nprint(x)",
		"crlf":                "print(1)\r\nif 1:\r\n    print(2)\r\n",
		"bom":                 "\ufeffprint('bom')",
		"group":               "import sys\nif sys.version_info >= (3, 11):\n    raise eval(\"ExceptionGroup('g', [ValueError(1), TypeError(2)])\")",
	}
	eachPython(t, func(t *testing.T, python string) {
		for name, code := range programs {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := run(t, kernel.Program{Code: code, Interpreter: python})
				want := plain(t, python, code)
				if d := cmp.Diff(blur(got), blur(run(t, kernel.Program{Code: code, Interpreter: python, Driver: compiled(t, python)}))); d != "" {
					t.Errorf("(-driver as text +compiled) %s", d)
				}
				if strings.Contains(python, "/3.8.") && name == "syntax" {
					want.Stderr = got.Stderr // its parser shows another line of a file than of a text
				}
				for _, d := range []struct{ what, got, want string }{
					{"stdout", got.Stdout, want.Stdout},
					{"stderr", got.Stderr, want.Stderr},
					{"exit", fmt.Sprint(got.Code, got.Signal), fmt.Sprint(want.Code, want.Signal)},
				} {
					if d := cmp.Diff(address.ReplaceAllString(d.want, "0x"), address.ReplaceAllString(d.got, "0x")); d != "" {
						t.Errorf("(-plain +ours) %s", d)
					}
				}
				if got.Error != nil && strings.Contains(strings.Join(got.Error.Traceback, "\n"), "bootstrap.py") {
					t.Errorf("frames of ours: %q", got.Error.Traceback)
				}
			})
		}
	})
}

// compiled is the driver as the interpreter's own code.
func compiled(t *testing.T, python string) []byte {
	t.Helper()
	name, text := kernel.PythonDriver()
	file := filepath.Join(t.TempDir(), "driver")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python, "-c", "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[1] + 'c', sys.argv[2], True)", file, name).CombinedOutput()
	if err != nil {
		t.Fatalf("the compiler: got %v: %s, want no error", err, out)
	}
	code, err := os.ReadFile(file + "c")
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// blur takes out of an outcome what differs from one run to the next.
func blur(o outcome) outcome {
	o.Stdout, o.Stderr = address.ReplaceAllString(o.Stdout, "0x"), address.ReplaceAllString(o.Stderr, "0x")
	if o.Error != nil {
		o.Error.Value = address.ReplaceAllString(o.Error.Value, "0x")
		o.Error.Traceback = strings.Split(address.ReplaceAllString(strings.Join(o.Error.Traceback, "\n"), "0x"), "\n")
	}
	return o
}

func TestPythonTellsOfExceptions(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		o := run(t, kernel.Program{Code: "def f():\n    raise ValueError('b\\u00f6\\n\"\\ud800')\nf()", Interpreter: python})
		want := &sandboxmcp.ProgramError{Name: "ValueError", Value: "bö\n\"\ufffd"}
		if o.Error == nil || o.Error.Name != want.Name || o.Error.Value != want.Value {
			t.Fatalf("error = %+v, want %+v", o.Error, want)
		}
		lines := strings.Join(o.Error.Traceback, "\n")
		for _, part := range []string{"Traceback (most recent call last):", `File "/run/program/main.py", line 3, in <module>`, `File "/run/program/main.py", line 2, in f`, "ValueError: bö"} {
			if !strings.Contains(lines, part) {
				t.Errorf("traceback: want %q in it, got\n%s", part, lines)
			}
		}
		if !o.Started || o.Syntax != nil {
			t.Errorf("report: got %+v, want a program that started, without a syntax error", o.Report)
		}

		o = run(t, kernel.Program{Code: "def f(n):\n    if n: g(n-1)\n    else: raise ValueError('x'*200000)\ndef g(n): f(n)\nf(400)", Interpreter: python})
		if o.Error == nil || len(o.Error.Value) != 65536 || len(o.Error.Traceback) > 200 {
			t.Errorf("a large error: got %d lines, want it cut", len(o.Error.Traceback))
		}
		for what, code := range map[string]string{
			"exit":           "raise SystemExit(3)",
			"child's":        "import os\nif os.fork() == 0: raise ValueError\nos.wait()",
			"channel closed": "import os\nos.close(3)\nraise ValueError",
			"channel reused": "import os\nos.close(3)\nf = open('/mnt/data/f'.replace('/mnt/data', os.getcwd()), 'w')\nassert f.fileno() == 3\nraise ValueError",
		} {
			if o := run(t, kernel.Program{Code: code, Interpreter: python}); o.Error != nil {
				t.Errorf("%s: got error %+v, want none", what, o.Error)
			}
		}
		at := places{t.TempDir(), t.TempDir()}
		runIn(t, kernel.Program{Code: "import os\nos.close(3)\nf = open('f', 'w')\nf.write('mine')\nraise ValueError", Interpreter: python}, at)
		if data, _ := os.ReadFile(filepath.Join(at.work, "f")); string(data) != "mine" {
			t.Errorf("a file that took the channel's number: got %q, want mine", data)
		}
	})
}

func TestPythonHostileChannel(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		for name, code := range map[string]string{
			"garbage":       "import os\nos.write(3, b'\\xff' * 3000000)\nprint('on')\nraise ValueError",
			"forged syntax": "import os\nos.write(3, b'\\0\\0\\0\\x11' + b'{\"type\":\"syntax\"}')\nprint('on')\nraise ValueError",
			"truncated":     "import os\nos.write(3, b'\\0\\0\\x10\\0abc')\nprint('on')\nraise ValueError",
		} {
			o := run(t, kernel.Program{Code: code, Interpreter: python})
			if o.Stdout != "on\n" || o.Code != 1 || o.Syntax != nil || !strings.HasSuffix(o.Stderr, "ValueError\n") {
				t.Errorf("%s: got %+v, want the program's own failure and nothing else", name, o)
			}
		}
	})
}

func TestPythonChildrenDoNotHoldTheChannel(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		o := run(t, kernel.Program{Code: "import subprocess\nprint(subprocess.run(['sh', '-c', 'ls /proc/self/fd'], close_fds=False, capture_output=True, text=True).stdout.split())", Interpreter: python})
		if strings.Contains(o.Stdout, "'3', '4'") {
			t.Errorf("descriptors of a child: got %s, want no channel among them", o.Stdout)
		}
	})
}

func TestPythonImportsFromTheWorkDir(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		at := places{t.TempDir(), t.TempDir()}
		for name, code := range map[string]string{"helper.py": "x = 5", "traceback.py": "raise RuntimeError('mine')", "linecache.py": "raise RuntimeError('mine')"} {
			if err := os.WriteFile(filepath.Join(at.work, name), []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := runIn(t, kernel.Program{Code: "import sys, helper\nprint(sys.path[0], helper.x)\n1/0", Interpreter: python}, at)
		if o.Stdout != "/mnt/data 5\n" || o.Error == nil || o.Error.Name != "ZeroDivisionError" || len(o.Error.Traceback) < 3 {
			t.Errorf("got %+v %+v, want the directory, 5 and ZeroDivisionError", o, o.Error)
		}
	})
}

func TestPythonDisplay(t *testing.T) {
	type want struct {
		stdout  string
		results []sandboxmcp.RichResult
	}
	html := "class H:\n    def __repr__(self): return 'plain'\n    def _repr_html_(self): return '<b>'\n    def _repr_png_(self): return b'\\x89PNG'\n"
	rich := sandboxmcp.RichResult{"text/plain": "plain", "text/html": "<b>", "image/png": "iVBORw==", "is_main_result": true}
	eachPython(t, func(t *testing.T, python string) {
		for _, c := range []struct {
			name, code string
			display    sandboxmcp.Display
			want       want
		}{
			{"sum", "1+1", "stdout", want{stdout: "2\n"}},
			{"sum to results", "1+1", "results", want{results: []sandboxmcp.RichResult{{"text/plain": "2", "is_main_result": true}}}},
			{"none", "1+1", "", want{}},
			{"None", "print('x')", "stdout", want{stdout: "x\n"}},
			{"None to results", "None", "results", want{}},
			{"text", "a = 'x'\na", "stdout", want{stdout: "'x'\n"}},
			{"not the last", "1+1\nx = 2", "stdout", want{}},
			{"in a block", "if 1:\n    5", "stdout", want{}},
			{"underscore", "import atexit, builtins\natexit.register(lambda: print(builtins._))\n7", "stdout", want{stdout: "7\n7\n"}},
			{"future", "from __future__ import annotations\nprint((lambda: 1)())\n(lambda f: f.__annotations__)(exec('def f(x: undefined): pass') or f)", "stdout", want{stdout: "1\n{'x': 'undefined'}\n"}},
			{"docstring", "'words'", "stdout", want{stdout: "'words'\n"}},
			{"rich", html + "H()", "stdout", want{stdout: "plain\n", results: []sandboxmcp.RichResult{rich}}},
			{"rich to results", html + "H()", "results", want{results: []sandboxmcp.RichResult{rich}}},
			{"class is not its instance", html + "H", "stdout", want{stdout: "<class '__main__.H'>\n"}},
			{"failing form", "class F:\n    def __repr__(self): return 'f'\n    def _repr_html_(self): 1/0\nF()", "stdout", want{stdout: "f\n"}},
			{"large form", "class F:\n    def __repr__(self): return 'f'\n    def _repr_html_(self): return 'x'*5000000\nF()", "stdout", want{stdout: "f\n", results: []sandboxmcp.RichResult{{"text/plain": "f", "is_main_result": true}}}},
			{"own hook", "import sys\nsys.displayhook = lambda v: print('mine', v)\n3", "stdout", want{stdout: "mine 3\n"}},
			{"shadowed", "exec = compile = type = None\n4", "stdout", want{stdout: "4\n"}},
			{"empty", "", "stdout", want{}},
			{"comment", "# nothing", "stdout", want{}},
		} {
			t.Run(c.name, func(t *testing.T) {
				o := run(t, kernel.Program{Code: c.code, Display: c.display, Interpreter: python})
				if c.want.results == nil {
					c.want.results = []sandboxmcp.RichResult{}
				}
				if o.Code != 0 || o.Stdout != c.want.stdout || o.Stderr != "" {
					t.Errorf("exit %d, stdout %q, stderr %q; want 0, %q", o.Code, o.Stdout, o.Stderr, c.want.stdout)
				}
				if d := cmp.Diff(c.want.results, o.Results); d != "" {
					t.Error(d)
				}
			})
		}
		o := run(t, kernel.Program{Code: "class R:\n    def __repr__(self): raise ValueError('r')\nR()", Display: "stdout", Interpreter: python})
		w := plain(t, python, "class R:\n    def __repr__(self): raise ValueError('r')\nrepr(R())")
		if o.Code != 1 || o.Error == nil || strings.Replace(w.Stderr, "repr(R())", "R()", 1) != o.Stderr && !strings.Contains(o.Stderr, "in __repr__") || strings.Contains(o.Stderr, "bootstrap") {
			t.Errorf("a repr that fails: got %+v, want the failure as Python shows it", o)
		}
		for _, d := range []sandboxmcp.Display{"stdout", "results"} {
			o := run(t, kernel.Program{Code: "x\ny = 1\n1/0", Display: d, Interpreter: python})
			w := plain(t, python, "x\ny = 1\n1/0")
			if o.Stderr != w.Stderr || o.Code != 1 {
				t.Errorf("display %s (-plain +ours): %s", d, cmp.Diff(w.Stderr, o.Stderr))
			}
		}
	})
}

func TestPythonSyntax(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		for code, want := range map[string]kernel.SyntaxError{
			"x = 1\nprint(":        {Name: "SyntaxError", Line: 2},
			"def f():\nreturn 1":   {Name: "IndentationError", Line: 2},
			"if 1:\n  a\n b":       {Name: "IndentationError", Line: 3},
			"return 1":             {Name: "SyntaxError", Line: 1},
			"print(1)\nawait f()":  {Name: "SyntaxError", Line: 2},
			"a\x00b":               {Name: "SyntaxError"},
			"# coding: nonsense\n": {Name: "SyntaxError"},
			"x = '\xff'":           {Name: "SyntaxError"},
		} {
			o := run(t, kernel.Program{Code: code, Display: "stdout", Interpreter: python})
			if o.Code != 1 || o.Stdout != "" || o.Stderr != "" || o.Started || o.Syntax == nil {
				t.Errorf("%q: got %+v, want a syntax error alone", code, o)
				continue
			}
			if o.Syntax.Name != want.Name || want.Line != 0 && o.Syntax.Line != want.Line || o.Syntax.Message == "" {
				t.Errorf("%q: %+v, want %+v", code, o.Syntax, want)
			}
		}
		// What is wrong at run time is not refused.
		o := run(t, kernel.Program{Code: "print(1)\nexec('(')", Display: "stdout", Interpreter: python})
		if o.Syntax != nil || o.Error == nil || o.Error.Name != "SyntaxError" || o.Stdout != "1\n" {
			t.Errorf("a SyntaxError of the running program: got %+v, want it as an error and not as its syntax", o)
		}
	})
}

func TestPythonOwnName(t *testing.T) {
	o := run(t, kernel.Program{Code: "import sys\nprint(__file__, sys.argv)\n1/0", FileName: "my tool.py", Interpreter: pythons(t)[0]})
	if o.Stdout != "/run/program/my tool.py ['/run/program/my tool.py']\n" || !strings.Contains(o.Stderr, `File "/run/program/my tool.py", line 3`) {
		t.Errorf("a program with a name of its own: got %+v, want the name in argv and traceback", o)
	}
}

func TestPythonPlan(t *testing.T) {
	secret := "print('the code')"
	p, err := kernel.Plan(kernel.Program{Code: secret, Interpreter: "/opt/py/bin/python3", Env: map[string]string{"A": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(p.Argv, func(a string) bool { return strings.Contains(a, "the code") }) || p.Channels != 1 {
		t.Errorf("got argv %q, %d channels; want no code in argv, and 1 channel", p.Argv, p.Channels)
	}
	want := []string{
		"A=b", "HOME=/tmp", "LANG=C.UTF-8", "NPM_CONFIG_UPDATE_NOTIFIER=false", "PATH=/opt/py/bin:/usr/local/bin:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PWD=/mnt/data",
		"PYTHONDONTWRITEBYTECODE=1", "SANDBOX_OUTPUT_DIR=/mnt/data", "TMPDIR=/tmp", "USER=sandbox",
		"http_proxy=http://127.0.0.1:312", "https_proxy=http://127.0.0.1:312", "no_proxy=localhost,127.0.0.1,::1,0.0.0.0,sandbox",
	}
	if d := cmp.Diff(want, p.Env); d != "" {
		t.Error(d)
	}
}

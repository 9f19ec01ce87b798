package kernel_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

func text(s string) []sandboxmcp.RichResult {
	return []sandboxmcp.RichResult{{"text/plain": s, "is_main_result": true}}
}

// One interpreter for each row, cells one after the other; what the last one says.
func TestPythonCells(t *testing.T) {
	type row struct {
		cells   []string
		stdout  string
		results []sandboxmcp.RichResult
		err     string // name of the exception
		stderr  string // a part of it
		exit    int
	}
	html := "class H:\n    def __repr__(self): return 'plain'\n    def _repr_html_(self): return '<b>'\n    def _repr_png_(self): return b'\\x89PNG'\n"
	rows := map[string]row{
		"state":             {cells: []string{"import math\nx = [1]\ndef f(): return x[0] + math.floor(1.5)", "x[0] = 41; print(f())"}, stdout: "42\n"},
		"value":             {cells: []string{"print('out')\n6 * 7"}, stdout: "out\n", results: text("42")},
		"no value":          {cells: []string{"None"}},
		"count of written":  {cells: []string{"import sys\nsys.stdout.write('x')"}, stdout: "x"},
		"underscores":       {cells: []string{"1", "2", "None", "3", "print(_, __, ___)"}, stdout: "3 2 1\n"},
		"own underscore":    {cells: []string{"_ = 'mine'", "5", "print(_)"}, stdout: "mine\n"},
		"names":             {cells: []string{"print(sorted(globals()), __name__, __package__, __spec__)"}, stdout: "['__annotations__', '__builtins__', '__doc__', '__loader__', '__name__', '__package__', '__spec__'] __main__ None None\n"},
		"argv and path":     {cells: []string{"import sys; print(sys.argv, repr(sys.path[0]))"}, stdout: "[''] ''\n"},
		"main guard":        {cells: []string{"if __name__ == '__main__': print('main')"}, stdout: "main\n"},
		"exception":         {cells: []string{"def f():\n    1/0", "x = 1\nf()"}, err: "ZeroDivisionError", exit: 1, stderr: "Traceback (most recent call last):\n  File \"<cell 2>\", line 2, in <module>\n    f()\n"},
		"source of a cell":  {cells: []string{"def f():\n    1/0  # here", "f()"}, err: "ZeroDivisionError", exit: 1, stderr: "  File \"<cell 1>\", line 2, in f\n    1/0  # here\n"},
		"after exception":   {cells: []string{"x = 1", "1/0", "x"}, results: text("1")},
		"chained":           {cells: []string{"try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e"}, err: "KeyError", exit: 1, stderr: "The above exception was the direct cause"},
		"syntax":            {cells: []string{"x = 1\nprint("}, err: "SyntaxError", exit: 1, stderr: "  File \"<cell 1>\", line 2\n"},
		"indentation":       {cells: []string{"if 1:\n  a\n b"}, err: "IndentationError", exit: 1, stderr: "line 3"},
		"exit":              {cells: []string{"import sys; sys.exit(3)"}, exit: 3},
		"exit 0":            {cells: []string{"raise SystemExit"}},
		"exit text":         {cells: []string{"import sys; sys.exit('words')"}, exit: 1, stderr: "words\n"},
		"exit large":        {cells: []string{"import sys; sys.exit(-1)"}, exit: 255},
		"after exit":        {cells: []string{"x = 2; exit(3)", "x"}, results: text("2")},
		"await":             {cells: []string{"import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7", "x = await f()\nprint(x)\nawait f()"}, stdout: "7\n", results: text("7")},
		"await fails":       {cells: []string{"async def f():\n    1/0", "await f()"}, err: "ZeroDivisionError", exit: 1, stderr: "(most recent call last):\n  File \"<cell 2>\", line 1, in <module>\n    await f()\n"},
		"one loop":          {cells: []string{"import asyncio\nl = await asyncio.sleep(0, asyncio.get_running_loop())", "l2 = await asyncio.sleep(0, asyncio.get_running_loop())\nl is l2"}, results: text("True")},
		"asyncio.run":       {cells: []string{"import asyncio\nasync def f(): return 1\nasyncio.run(f())"}, results: text("1")},
		"async for":         {cells: []string{"async def g():\n    yield 1\n    yield 2", "[i async for i in g()]"}, results: text("[1, 2]")},
		"future":            {cells: []string{"from __future__ import annotations\ndef f(x: undefined): pass\nf.__annotations__"}, results: text("{'x': 'undefined'}")},
		"future of before":  {cells: []string{"from __future__ import annotations", "def f(x: undefined): pass\nf.__annotations__"}, err: "NameError", exit: 1},
		"rich":              {cells: []string{html, "H()"}, results: []sandboxmcp.RichResult{{"text/plain": "plain", "text/html": "<b>", "image/png": "iVBORw==", "is_main_result": true}}},
		"failing repr":      {cells: []string{"class R:\n    def __repr__(self): raise ValueError('r')\nR()"}, err: "ValueError", exit: 1, stderr: "in __repr__"},
		"large form":        {cells: []string{"class F:\n    def __repr__(self): return 'f'\n    def _repr_html_(self): return 'x'*5000000\nF()"}, results: text("f")},
		"display":           {cells: []string{html + "display(H(), 5)"}, results: []sandboxmcp.RichResult{{"text/plain": "plain", "text/html": "<b>", "image/png": "iVBORw==", "is_main_result": false}, {"text/plain": "5", "is_main_result": false}}},
		"display of a dict": {cells: []string{"from sandbox import display\ndisplay({'a': [1]})"}, results: []sandboxmcp.RichResult{{"text/plain": "{'a': [1]}", "application/json": json.RawMessage(`{"a": [1]}`), "is_main_result": false}}},
		"thread's display":  {cells: []string{"import threading\ngo = threading.Event()\ndef f():\n    go.wait()\n    while True:\n        if __import__('sys').modules: pass\n        break\n    display(1)\nt = threading.Thread(target=f); t.start()", "go.set(); t.join()"}, results: []sandboxmcp.RichResult{{"text/plain": "1", "is_main_result": false}}},
		"threads go on":     {cells: []string{"import threading\ngo = threading.Event()\nt = threading.Thread(target=lambda: (go.wait(), print('late'))); t.start()", "go.set(); t.join()"}, stdout: "late\n"},
		"no input":          {cells: []string{"input()"}, err: "EOFError", exit: 1},
		"getsource":         {cells: []string{"class A:\n    x = 1", "def f():\n    return 1  # here", "import inspect\nprint(inspect.getsource(f) + inspect.getsource(A))"}, stdout: "def f():\n    return 1  # here\nclass A:\n    x = 1\n\n"},
		"pickle":            {cells: []string{"class A:\n    x = 1", "import pickle\nprint(pickle.loads(pickle.dumps(A())).x, A.__module__)"}, stdout: "1 __main__\n"},
		"dataclass":         {cells: []string{"from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1", "P()"}, results: text("P(x=1)")},
		"processes":         {cells: []string{"import multiprocessing as m\ndef f(x): return x*x", "with m.get_context('fork').Pool(2) as p: print(p.map(f, [1,2,3]))"}, stdout: "[1, 4, 9]\n"},
		"fork":              {cells: []string{"import os\nx = 1\npid = os.fork()\nif pid == 0:\n    x = 2\nelse:\n    print(os.waitpid(pid, 0)[1])", "x"}, results: text("1")},
		"fork that raises":  {cells: []string{"import os\npid = os.fork()\nif pid == 0: raise ValueError('child')\nprint(os.waitpid(pid, 0)[1] >> 8)"}, stdout: "1\n", stderr: "ValueError: child\n"},
		"fork that exits":   {cells: []string{"import os, sys\npid = os.fork()\nif pid == 0: sys.exit(7)\nprint(os.waitpid(pid, 0)[1] >> 8)"}, stdout: "7\n"},
		"warning":           {cells: []string{"import warnings\nwarnings.warn('careful')", "warnings.warn('careful')"}, stderr: "<cell 2>:1: UserWarning: careful\n  warnings.warn('careful')\n"},
		"own hook":          {cells: []string{"import sys\nsys.excepthook = lambda t, v, tb: print('hook', v)", "1/0"}, err: "ZeroDivisionError", exit: 1, stdout: "hook division by zero\n"},
		"broken str":        {cells: []string{"class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E"}, err: "E", exit: 1},
		"recursion":         {cells: []string{"def f(): f()\nf()"}, err: "RecursionError", exit: 1},
		"deep syntax":       {cells: []string{strings.Repeat("(", 5000) + strings.Repeat(")", 5000)}, err: "*", exit: 1},
		"shadowed":          {cells: []string{"exec = compile = open = type = Exception = SystemExit = BaseException = print = None", "4"}, results: text("4")},
		"builtins damaged":  {cells: []string{"import builtins\nfor n in ('exec', 'compile', 'len', 'type', 'isinstance', 'print', 'open'): setattr(builtins, n, None)", "4"}, results: text("4")},
		"low recursion":     {cells: []string{"import sys\ndef f(n): return n and f(n - 1)\nsys.setrecursionlimit(60)\nf(100)"}, err: "*", exit: 1, stderr: "*"},
		"streams closed":    {cells: []string{"import sys\nsys.stdout.close(); sys.stdin.close()", "4"}, results: text("4")},
		"stdout gone":       {cells: []string{"import sys\nsys.stdout = sys.stderr = None\n1/0"}, err: "ZeroDivisionError", exit: 1},
		"user's modules":    {cells: []string{"open('traceback.py', 'w').write('1/0'); open('json.py', 'w').write('1/0'); open('asyncio.py', 'w').write('1/0')", "display({'a': 1})\nundefined"}, err: "NameError", exit: 1, results: []sandboxmcp.RichResult{{"text/plain": "{'a': 1}", "application/json": json.RawMessage(`{"a": 1}`), "is_main_result": false}}},
		"stray alarm":       {cells: []string{"import signal\ndef h(*a): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, h)\nsignal.setitimer(signal.ITIMER_REAL, .01)", "import time\ntry:\n    time.sleep(.1)\nexcept TimeoutError: pass", "5"}, results: text("5")},
		"signal between":    {cells: []string{"import os, signal, time, threading\ngot = []\ndef h(*a): got.append(1); raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, h)\nt = threading.Thread(target=lambda: (time.sleep(.05), os.kill(os.getpid(), signal.SIGALRM))); t.start()", "got * 0", "t.join()", "got"}, results: text("[1]")},
		"alarm displays":    {cells: []string{"import signal\nsignal.signal(signal.SIGALRM, lambda *a: display('a'))\nsignal.setitimer(signal.ITIMER_REAL, .005, .005)\nfor i in range(100): display('x' * 1000)\nsignal.setitimer(signal.ITIMER_REAL, 0)", "None"}, results: nil, err: "", stdout: "", exit: 0, stderr: "*"},
		"empty":             {cells: []string{""}},
	}
	eachPython(t, func(t *testing.T, python string) {
		run := func(name string, r row, version string) {
			t.Run(strings.TrimSpace(name+" "+version), func(t *testing.T) {
				t.Parallel()
				l := begin(t, kernel.Program{Interpreter: python, Version: version})
				var s said
				for _, c := range r.cells {
					if s = l.py(t, c); s.Err != nil {
						t.Fatalf("%.200q: got %v, stderr %s; want no error", c, s.Err, s.Stderr)
					}
				}
				if name == "names" {
					s.Stdout = strings.Replace(s.Stdout, "['__builtins__'", "['__annotations__', '__builtins__'", 1) // not made at the start from 3.14 on
				}
				if s.Stdout != r.stdout || s.Exit != r.exit || !s.Done {
					t.Errorf("stdout %q, exit %d, done %v; want %q, %d; stderr %s", s.Stdout, s.Exit, s.Done, r.stdout, r.exit, s.Stderr)
				}
				if r.stderr != "*" {
					if d := cmp.Diff(append([]sandboxmcp.RichResult{}, r.results...), s.Results); d != "" {
						t.Error(d)
					}
					if d := cmp.Diff(append([]sandboxmcp.RichResult{}, s.Shown...), s.Results); d != "" {
						t.Error(d)
					}
					if !strings.Contains(s.Stderr, r.stderr) || r.stderr == "" && r.err == "" && s.Stderr != "" {
						t.Errorf("stderr %q, want %q", s.Stderr, r.stderr)
					}
				}
				if r.err != "*" && (s.Error == nil) != (r.err == "") || s.Error != nil && r.err != "*" && s.Error.Name != r.err {
					t.Errorf("error %+v, want %q", s.Error, r.err)
				}
				if strings.Contains(s.Stderr, "_bootstrap") || s.Error != nil && strings.Contains(strings.Join(s.Error.Traceback, ""), "_bootstrap") {
					t.Errorf("stderr: got frames of the driver in %s, want the cell's alone", s.Stderr)
				}
				if r.err != "*" && (s.Syntax == nil) != s.Started {
					t.Errorf("got syntax %+v, started %v; want one of them", s.Syntax, s.Started)
				}
			})
		}
		for name, r := range rows {
			run(name, r, "")
			run(name, r, "3.9") // begins with site
		}
	})
}

func TestPythonCellMagics(t *testing.T) {
	rows := []struct{ name, code, stdout, stderr, err string }{
		{"shell", "x = 5\n!echo a{x}b $x ${x} '{y}' | tr b c", "a5c 5 {y}\n", "", ""},
		{"pwd", "%pwd", "", "", ""},
		{"lines hold", "x = 1\n!true\n%matplotlib inline\n1/0", "", "line 4", "ZeroDivisionError"},
		{"assigned", "a = !printf 'x\\ny\\n'\nprint(a, a.n == 'x\\ny')", "['x', 'y'] True\n", "", ""},
		{"in a block", "for i in range(2):\n    !echo {i}", "0\n1\n", "", ""},
		{"in a string", "s = '''\n!echo no\n%pwd\n'''\n!echo yes\nprint(s.count('echo'))", "yes\n1\n", "", ""},
		{"in brackets", "x = (7\n% 4)\n!echo {x}", "3\n", "", ""},
		{"continued", "!echo a \\\n  b\nprint(1)\nundefined", "a b\n1\n", "line 4", "NameError"},
		{"valid Python stays", "a = 7\nb = (a\n%a)\nprint(b)", "0\n", "", ""},
		{"bash", "%%bash\nx=1\necho $((x + 1))", "2\n", "", ""},
		{"bash fails", "%%sh\nexit 3", "", "exit status 3", "CalledProcessError"},
		{"writefile", "%%writefile a.txt\nline\n%x", "Writing a.txt\n", "", ""},
		{"cd", "%cd /\nimport os; print(os.getcwd())", "/\n/\n", "", ""},
		{"env", "%env A=1\nimport os; print(os.environ['A'])", "env: A=1\n1\n", "", ""},
		{"who", "x = 1\n%who", "x\n", "", ""},
		{"install", "!pip install requests", "", "no host is open", "UsageError"},
		{"pip magic", "%pip install -q requests", "", "no host is open", "UsageError"},
		{"python -m pip", "import sys\n!python3 -m pip install requests", "", "no host is open", "UsageError"},
		{"unknown", "%nonsense 1", "", "UsageError: Line magic function `%nonsense` not found.", "UsageError"},
		{"unknown cell", "%%nonsense\nx", "", "UsageError: Cell magic `%%nonsense` not found.", "UsageError"},
		{"still wrong", "!true\nx = = 1", "", "line 2", "SyntaxError"},
		{"other syntax", "x = 5 % \nprint(", "", "SyntaxError", "SyntaxError"},
		{"help", "def f():\n    'helpful words'\nf?", "function f in module __main__\n\nf()\n    helpful words\n\n", "", ""},
		{"run", "open('t.py', 'w').write('import sys; y = sys.argv[1:]; print(__name__)')\n%run t.py a b\nprint(y)", "__main__\n['a', 'b']\n", "", ""},
	}
	eachPython(t, func(t *testing.T, python string) {
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				s := begin(t, kernel.Program{Interpreter: python}).py(t, r.code)
				if s.Err != nil || s.Stdout != r.stdout || !strings.Contains(s.Stderr, r.stderr) || strings.Contains(s.Stderr, "bootstrap") {
					t.Errorf("%v, stdout %q, stderr %q; want %q, %q", s.Err, s.Stdout, s.Stderr, r.stdout, r.stderr)
				}
				if (s.Error == nil) != (r.err == "") || s.Error != nil && s.Error.Name != r.err {
					t.Errorf("error %+v, want %q", s.Error, r.err)
				}
			})
		}
		l := begin(t, kernel.Program{Interpreter: python})
		for code, want := range map[string]string{"%time 1+1": "Wall time: ", "%timeit -n 2 -r 2 pass": "2 runs, 2 loops each", "%%time\nx = 1\nprint(x)": "Wall time: "} {
			if s := l.py(t, code); !strings.Contains(s.Stdout, want) || s.Exit != 0 {
				t.Errorf("%q: got %+v, want its output and 0", code, s)
			}
		}
	})
}

// TestPythonFigures uses a replacement of matplotlib that records its calls: show() displays
// and closes the figures, and so does the end of a cell.
func TestPythonFigures(t *testing.T) {
	const stub = `
figures = {}
class Figure:
    axes = lines = texts = images = ()
    dpi = 100
    def __init__(self, n): self.n = n
    def __repr__(self): return "<Figure %d>" % self.n
    def get_size_inches(self): return 6, 4
    def savefig(self, out, format, dpi, **options):
        if self.n == 13: raise ValueError("cannot be drawn")
        out.write(b"x" * (2000000 if self.n == 9 and dpi == "figure" else 3))
def figure(n):
    return figures.setdefault(n, Figure(n))
def get_fignums(): return sorted(figures)
def close(which): figures.clear()
def show(): raise RuntimeError("not ours")
`
	fig := func(n string, main bool) sandboxmcp.RichResult {
		return sandboxmcp.RichResult{"text/plain": "<Figure " + n + ">", "image/png": "eHh4", "is_main_result": main}
	}
	const head = "import matplotlib.pyplot as plt\n"
	eachPython(t, func(t *testing.T, python string) {
		at := places{t.TempDir(), t.TempDir()}
		if err := os.Mkdir(filepath.Join(at.work, "matplotlib"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, code := range map[string]string{"__init__": "", "figure": stub, "pyplot": "from .figure import *"} {
			if err := os.WriteFile(filepath.Join(at.work, "matplotlib", name+".py"), []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l := beginIn(t, kernel.Program{Interpreter: python}, at)
		for _, c := range []struct {
			code string
			want []sandboxmcp.RichResult
			err  bool
		}{
			{head + "plt.figure(1); None", []sandboxmcp.RichResult{fig("1", false)}, false},
			{"plt.figure(2); plt.show(); plt.figure(3); plt.show()", []sandboxmcp.RichResult{fig("2", false), fig("3", false)}, false},
			{"f = plt.figure(4)\nf", []sandboxmcp.RichResult{fig("4", true)}, false},
			{"plt.figure(9); None", []sandboxmcp.RichResult{fig("9", false)}, false},
			{"plt.figure(5); 1/0", []sandboxmcp.RichResult{fig("5", false)}, true},
			{"plt.figure(13); None", nil, true},
			{"plt.get_fignums()", text("[]"), false},
		} {
			s := l.py(t, c.code)
			if d := cmp.Diff(append([]sandboxmcp.RichResult{}, c.want...), s.Results); d != "" || (s.Error != nil) != c.err || s.Err != nil {
				t.Errorf("%q: got %+v (-want +got) %s", c.code, s, d)
			}
		}
	})
}

func TestPythonCellInput(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		l := begin(t, kernel.Program{Interpreter: python})
		for _, c := range []struct {
			cell kernel.Cell
			want string
		}{
			{kernel.Cell{Code: "print(input(), sys.stdin.read()) if (sys := __import__('sys')) else 0", Stdin: []byte("a\nb\nc")}, "a b\nc\n"},
			{kernel.Cell{Code: "import subprocess; print(subprocess.run(['cat'], stdout=-1).stdout)", Stdin: []byte("\xff\x00")}, "b'\\xff\\x00'\n"},
			{kernel.Cell{Code: "import sys; print(repr(sys.stdin.read()))"}, "''\n"},
			{kernel.Cell{Code: "print(len(sys.stdin.buffer.read()))", Stdin: make([]byte, 5<<20)}, "5242880\n"},
			{kernel.Cell{Code: "import os\nprint(os.environ['A'], os.environ['USER'])", Env: map[string]string{"A": "1", "USER": "x"}}, "1 x\n"},
			{kernel.Cell{Code: "print('A' in os.environ, os.environ['USER'])"}, "False sandbox\n"},
			{kernel.Cell{Code: "os.environ['B'] = '2'"}, ""},
			{kernel.Cell{Code: "print(os.environ['B'])\n1 + 1"}, "2\n"},
			{kernel.Cell{Code: "'x'", Display: sandboxmcp.DisplayStdout}, "'x'\n"},
		} {
			if s := l.do(t, c.cell); s.Stdout != c.want || s.Err != nil || s.Exit != 0 || len(s.Results) > 0 {
				t.Errorf("%q: %+v, want %q", c.cell.Code, s, c.want)
			}
		}
	})
}

func TestPythonBridge(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		l := begin(t, kernel.Program{Interpreter: python, Env: map[string]string{"SANDBOX_POLICY": `{"network":["example.com"]}`}})
		in := filepath.Join(l.at.program, "bridge")
		if err := os.Mkdir(in, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(in, "answer.json"), []byte(`{"v":42}`), 0o644); err != nil {
			t.Fatal(err)
		}
		for code, want := range map[string]string{
			"import sandbox; sandbox.bridge['answer']['v']":                                      "42",
			"import sandbox; sandbox.bridge['back'] = ['ü']; sorted(sandbox.bridge)":             "['answer', 'back']",
			"from sandbox import policy; policy['network'], policy['writable']":                  "(['example.com'], ['/mnt/data', '/tmp'])",
			"import sandbox; sandbox.bridge.get('../answer'), 'x' in sandbox.bridge":             "(None, False)",
			"try:\n    sandbox.bridge['a/b'] = 1\nexcept ValueError as e: r = 'refused'\nr":      "'refused'",
			"try:\n    del sandbox.bridge['answer']\nexcept PermissionError: r = 'read only'\nr": "'read only'",
		} {
			code = "import sandbox\n" + code
			if s := l.py(t, code); len(s.Results) != 1 || l.names.Replace(s.Results[0]["text/plain"].(string)) != want {
				t.Errorf("%q: %+v, want %s", code, s, want)
			}
		}
		if got, err := os.ReadFile(filepath.Join(l.at.work, ".bridge", "back.json")); string(got) != `["ü"]` {
			t.Errorf("put out: %s, %v", got, err)
		}
	})
}

// What an interpreter costs to start and a cell to go there and back.
func BenchmarkPythonCell(b *testing.B) {
	l := begin(b, kernel.Program{Interpreter: "/usr/bin/python3"})
	var took []time.Duration
	for b.Loop() {
		at := time.Now()
		if _, err := l.Execute(b.Context(), kernel.Cell{Display: sandboxmcp.DisplayResults}, nil); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
}

func BenchmarkPythonInterpreterStart(b *testing.B) {
	for b.Loop() {
		if _, err := begin(b, kernel.Program{Interpreter: "/usr/bin/python3"}).Execute(b.Context(), kernel.Cell{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

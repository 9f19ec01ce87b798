package kernel_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// lacking are programs that only work if names are bound for them, with their output and
// what was bound.
var lacking = map[string]struct{ code, stdout, fixes string }{
	"module":             {"print(json.dumps({'a':1}))", "{\"a\": 1}\n", "import json"},
	"in a function":      {"def f():\n    return math.floor(2.5)\nprint(f())", "2\n", "import math"},
	"in a comprehension": {"print([math.floor(x) for x in (1.5, 2.5)])", "[1, 2]\n", "import math"},
	"in a class":         {"class A:\n    x = math.floor(1.5)\n    def json(self): return json.dumps(self.x)\nprint(A().json())", "1\n", "import math, import json"},
	"beside imports":     {"import os, sys\nfrom datetime import timedelta\nprint(json.dumps(1), os.sep)", "1 /\n", "import json"},
	"class of a module":  {"print(Path('/a').name, type(datetime.now()).__name__)", "a datetime\n", "from pathlib import Path, from datetime import datetime"},
	"datetime module":    {"print(datetime.date(2024, 1, 2))", "2024-01-02\n", "import datetime"},
	"global declared":    {"def f():\n    global json\n    print(json.dumps(1))\nf()", "1\n", "import json"},
	"future and doc":     {"'''doc'''\nfrom __future__ import annotations\nprint(__doc__, json.dumps(1))", "doc 1\n", "import json"},
	"any exception":      {"try:\n    print(json.loads('{'))\nexcept Exception as e:\n    print(type(e).__name__)", "JSONDecodeError\n", "import json"},
	"with a file":        {"with open('/dev/null') as f:\n    s = sys.byteorder\nprint(s)", "little\n", "import sys"},
	"main guard":         {"if __name__ == '__main__':\n    print(json.dumps(1))", "1\n", "import json"},
	"warning of syntax":  {"x = '\\d'\nprint(json.dumps(1))", "1\n", "import json"},
	"names of an object": {"print('dumps' in dir(json), 'dumps' in vars(json))", "True True\n", "import json"},
}

// same are programs that must run as without any help: they bind a name themselves or look
// whether it is bound.
var same = map[string]string{
	"own import":           "import json\nprint(json.dumps(1))",
	"import in a function": "def f():\n    import json\n    return json.dumps(1)\nprint(f())\nprint(json)",
	"except NameError":     "try:\n    json\n    print('there')\nexcept NameError:\n    print('not there')",
	"except any, bare":     "try:\n    json\n    print('there')\nexcept:\n    print('not there')",
	"except any, value":    "try:\n    j = json\nexcept Exception:\n    j = None\nprint(j)",
	"except any, version":  "try:\n    v = json.__version__\nexcept Exception as e:\n    v = type(e).__name__\nprint(v)",
	"suppressed":           "from contextlib import suppress\nwith suppress(Exception):\n    json\n    print('there')",
	"deleted":              "json = 1\ndel json\nprint(json)",
	"only deleted":         "del json",
	"globals":              "print('json' in globals())\nprint(json.dumps(1))",
	"dir":                  "if 'json' in dir():\n    print(json)\nprint('json' in vars())",
	"modules":              "import sys\nif 'csv' in sys.modules:\n    print(csv)\nprint(1)",
	"own module":           "print(hasattr(__import__('__main__'), 'json'))\nif 0 > 1: json",
	"star":                 "from os.path import *\nprint(json)",
	"exec":                 "exec('json = 5')\nprint(json)",
	"text for exec":        "exec('print(json)')",
	"never bound in time":  "if False:\n    json = 1\nprint(json)",
	"bound in a loop":      "for json in ():\n    pass\nprint(json)",
	"in a comprehension":   "print([json for json in (1, 2)])\nprint(json)",
	"argument":             "def f(json):\n    return json\nprint(f(1))\nprint(json)",
	"local":                "def f():\n    json = 1\n    return json\nprint(f())\nprint(json)",
	"name of an exception": "try:\n    1/0\nexcept ZeroDivisionError as json:\n    pass\nprint(json)",
	"walrus":               "print([y for x in (1, 2) if (json := x) for y in (x,)], json)",
	"class scope":          "class A:\n    json = 1\n    x = json\nprint(A.x)",
	"method":               "class A:\n    def json(self): return 1\n    x = json\nprint(A().x())",
	"attributes":           "class A:\n    json = time = 1\nprint(A.json, A().time)",
	"builtin set":          "import builtins\nbuiltins.json = 5\nprint(json)",
	"unknown name":         "print(jsn)",
	"not installed":        "print(bs4.x)",
	"a text":               "print('json')",
	"own module's globals": "def f(): pass\nprint('json' in f.__globals__)\ndef g(): json.x",
}

func TestPythonBindsWhatIsLacking(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		version := knownVersion(t, python)
		for name, c := range lacking {
			for _, display := range []sandboxmcp.Display{sandboxmcp.DisplayNone, sandboxmcp.DisplayStdout, sandboxmcp.DisplayResults} {
				o := run(t, kernel.Program{Interpreter: python, Version: version, Code: c.code, Display: display})
				if got := fixesOf(o.Report); o.Stdout != c.stdout || got != c.fixes || strings.Contains(o.Stderr, "NameError") {
					t.Errorf("%s, display %q: got %q, %q, bound %q; want %q, bound %q", name, display, o.Stdout, o.Stderr, got, c.stdout, c.fixes)
				}
			}
		}
	})
}

func TestPythonOfOtherProgramsIsUnchanged(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		version := knownVersion(t, python)
		for name, code := range same {
			want := plain(t, python, code)
			for _, display := range []sandboxmcp.Display{sandboxmcp.DisplayNone, sandboxmcp.DisplayResults} {
				o := run(t, kernel.Program{Interpreter: python, Version: version, Code: code, Display: display})
				if o.Stdout != want.Stdout || o.Stderr != want.Stderr || o.Code != want.Code || len(o.Fixes) > 0 {
					t.Errorf("%s, display %q: got %q, %q, %d, bound %v; want %q, %q, %d", name, display, o.Stdout, o.Stderr, o.Code, o.Fixes, want.Stdout, want.Stderr, want.Code)
				}
			}
		}
	})
}

// A program that can be compiled but is too deep for a tree runs as it is.
func TestPythonOfDeepProgramsIsUnchanged(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		for _, depth := range []int{50, 80, 150, 1000} {
			code := "print(" + strings.Repeat("(", depth) + "1" + strings.Repeat(")", depth) + ")\nx = " + strings.Repeat("-", depth) + "1\nprint(json.dumps(1))"
			want := plain(t, python, code)
			o := run(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: code})
			const twice = "s_push: parser stack overflow\n" // of Python 3.8, once each time that it compiles
			o.Stderr, want.Stderr = strings.ReplaceAll(o.Stderr, twice, ""), strings.ReplaceAll(want.Stderr, twice, "")
			if fixed := o.Code == 0 && o.Stdout == "1\n1\n"; !fixed && (o.Stdout != want.Stdout || o.Stderr != want.Stderr) {
				t.Errorf("depth %d: got %q, %q; want that of the interpreter, %q, %q", depth, o.Stdout, o.Stderr, want.Stdout, want.Stderr)
			}
		}
	})
}

// The five tools promise the plain interpreter, and their answer has no place to say what was bound.
func TestPythonWithFiguresBindsNothing(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		o := run(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: "print(json.dumps(1))", Display: sandboxmcp.DisplayFigures})
		if o.Code != 1 || !strings.Contains(o.Stderr, "NameError: name 'json' is not defined") {
			t.Errorf("got %d, %q; want the NameError", o.Code, o.Stderr)
		}
	})
}

// A missing import runs no file of the program, and the program itself still can.
func TestPythonBindsNoFileOfTheProgram(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		at := places{t.TempDir(), t.TempDir()}
		for _, name := range []string{"csv.py", "bs4.py", "mine.py"} {
			if err := os.WriteFile(filepath.Join(at.work, name), []byte("print('file "+name+"')"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := runIn(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: "import mine\nprint(csv.reader.__name__)\nbs4"}, at)
		if o.Stdout != "file mine.py\nreader\n" || !strings.Contains(o.Stderr, "name 'bs4' is not defined") {
			t.Errorf("got %q, %q; want the standard csv and no bs4", o.Stdout, o.Stderr)
		}
	})
}

// Packages are bound where they are installed; one that fails to import leaves the program's own error.
func TestPythonBindsPackagesOfSets(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		set := t.TempDir()
		for name, text := range map[string]string{"numpy.py": "one = 1", "requests.py": "1/0", "matplotlib/__init__.py": "", "matplotlib/pyplot.py": "two = 2"} {
			p := filepath.Join(set, "site-packages", name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code := "import sys, posix\nprint(np.one, numpy.one, plt.two, sys.path[0] in ('', posix.getcwd()))\nrequests.get('x')"
		want := []string{"added import numpy as np", "added import numpy", "added import matplotlib.pyplot as plt"}
		p := kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: code, Sets: []string{set}}
		o := run(t, p)
		if o.Stdout != "1 1 2 True\n" || !slices.Equal(o.Fixes, want) || !strings.HasSuffix(o.Stderr, "NameError: name 'requests' is not defined\n") || strings.Contains(o.Stderr, "ZeroDivisionError") {
			t.Errorf("got %q, %q, %q; want the three packages and no requests", o.Stdout, o.Stderr, o.Fixes)
		}
		s := begin(t, p).do(t, kernel.Cell{Code: code})
		if s.Stdout != "1 1 2 True\n" || !slices.Equal(s.Fixes, want) || !strings.HasSuffix(s.Stderr, "NameError: name 'requests' is not defined\n") || strings.Contains(s.Stderr, "ZeroDivisionError") {
			t.Errorf("in a session: got %q, %q, %q; want the three packages and no requests", s.Stdout, s.Stderr, s.Fixes)
		}
	})
}

func TestPythonCellsBindWhatIsLacking(t *testing.T) {
	rows := map[string]struct {
		cells         []string
		stdout, fixes string // of the last cell
	}{
		"cell":             {[]string{"1", "print(json.dumps(1))"}, "1\n", "import json"},
		"last expression":  {[]string{"print(2)\njson.dumps(1)"}, "2\n", "import json"},
		"stays bound":      {[]string{"json.dumps(1)", "print(json.dumps(1))"}, "1\n", ""},
		"bound earlier":    {[]string{"json = 7", "print(json)"}, "7\n", ""},
		"imported earlier": {[]string{"import math as json", "print(json.floor(1.5))"}, "1\n", ""},
		"star earlier":     {[]string{"from os.path import *\nmath = 4", "print(math)"}, "4\n", ""},
		"top-level await":  {[]string{"import asyncio", "await asyncio.sleep(0)\nprint(json.dumps(1))"}, "1\n", "import json"},
		"tested":           {[]string{"try:\n    json\nexcept NameError:\n    print('no')"}, "no\n", ""},
		"in globals":       {[]string{"print('json' in globals())\ndef f(): return json.x"}, "False\n", ""},
		"nothing unknown":  {[]string{"print(json.dumps(1))", "print('names' in globals(), 'found' in globals(), 'KNOWN' in globals())"}, "False False False\n", ""},
	}
	eachPython(t, func(t *testing.T, python string) {
		for name, r := range rows {
			l := begin(t, kernel.Program{Interpreter: python})
			var last said
			for _, c := range r.cells {
				last = l.do(t, kernel.Cell{Code: c, Display: sandboxmcp.DisplayResults})
			}
			if got := fixesOf(last.Report); last.Stdout != r.stdout || got != r.fixes || last.Err != nil || last.Exit != 0 {
				t.Errorf("%s: got %q, %q, bound %q, %v; want %q, bound %q", name, last.Stdout, last.Stderr, got, last.Err, r.stdout, r.fixes)
			}
		}
		l := begin(t, kernel.Program{Interpreter: python})
		if s := l.do(t, kernel.Cell{Code: "print(json.dumps(1))", Display: sandboxmcp.DisplayFigures}); s.Exit != 1 || len(s.Fixes) > 0 {
			t.Errorf("with figures: got %d, %q; want a NameError", s.Exit, s.Stderr)
		}
	})
}

// A program can write to its driver's channel: words that no driver says are not taken.
func TestReadTakesKnownFixesOnly(t *testing.T) {
	frames := frame(`{"type":"fixed","fixes":["added import json","added a secret","added import datetime"]}`) + frame(`{"type":"start"}`)
	rep, err := kernel.Read(strings.NewReader(frames+frame(`{"type":"fixed","fixes":["added import csv"]}`)), nil)
	if want := []string{"added import json", "added import datetime"}; err != nil || !rep.Started || !slices.Equal(rep.Fixes, want) {
		t.Errorf("got %v, %v; want %v", rep.Fixes, err, want)
	}
}

func fixesOf(r kernel.Report) string {
	fixes := slices.Clone(r.Fixes)
	for i, f := range fixes {
		fixes[i] = strings.TrimPrefix(f, "added ")
	}
	return strings.Join(fixes, ", ")
}

package kernel_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// stubs are replacements of packages that record how they are used, by their files.
var stubs = map[string]string{
	"matplotlib/__init__.py": "",
	"matplotlib/figure.py": `
class Figure:
    axes = lines = texts = images = ()
    stale = True
    def __init__(self, n): self.n = n
    def __repr__(self): return "<Figure %d>" % self.n
    def get_size_inches(self): return 6, 4
    def savefig(self, out, **options):
        self.stale = True
        data = b"\x89PNG %d" % self.n
        if hasattr(out, "write"): out.write(data)
        else: open(out, "wb").write(data)
`,
	"matplotlib/lines.py": `
class Line2D:
    def __repr__(self): return "<line>"
`,
	"matplotlib/pyplot.py": `
from .figure import Figure
from .lines import Line2D
def plot(): return figure(7) and [Line2D()]
figures = {}
def figure(n): return figures.setdefault(n, Figure(n))
def get_fignums(): return sorted(figures)
def close(which): figures.clear()
def show(): print("plain show")
def savefig(name): figure(99).savefig(name)
`,
	"IPython/__init__.py":      "",
	"IPython/core/__init__.py": "",
	"IPython/core/display_functions.py": `
def display(*values, **options): print("plain", *values)
publish_display_data = clear_output = update_display = display
`,
	"IPython/display.py": "from .core.display_functions import display, clear_output\n",
	"pandas/__init__.py": "options = {}\ndef set_option(name, value): options[name] = value\n",
}

// withStubs writes the stubs into a new working directory.
func withStubs(t *testing.T) places {
	t.Helper()
	at := places{t.TempDir(), t.TempDir()}
	for name, code := range stubs {
		if err := os.MkdirAll(filepath.Join(at.work, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at.work, name), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// figureRow is a program with the figures that it shows.
type figureRow struct {
	name, code string
	want       string // the bytes of the shown pictures, in order
}

var figureRows = []figureRow{
	{"left open", "plt.figure(1)\nNone", "1"},
	{"shown", "plt.figure(1)\nplt.show()", "1"},
	{"each once", "plt.figure(1); plt.show(); plt.figure(2)\nNone", "1 2"},
	{"after an exception", "plt.figure(3)\n1/0", "3"},
	{"after an exit", "plt.figure(3)\nraise SystemExit(0)", "3"},
	{"saved and left open", "plt.figure(4).savefig('a.png')\nopen('a.png', 'wb').write(b'\\x89PNG 40') and None", "40"},
	{"changed after it was saved", "f = plt.figure(4); f.savefig('a.png'); f.stale = True\nopen('a.png', 'wb').write(b'\\x89PNG 40') and None", "4"},
	{"saved to two files and left open", "f = plt.figure(4); f.savefig('a.png'); f.savefig('b.pdf')\nopen('a.png', 'wb').write(b'\\x89PNG 40') and open('b.pdf', 'wb').write(b'pdf') and None", "40"},
	{"saved elsewhere after its file", "import os; os.makedirs('work', exist_ok=True); os.environ['SANDBOX_OUTPUT_DIR'] = os.getcwd() + '/work'\nf = plt.figure(4); f.savefig('work/a.png'); f.savefig('b.png')\nopen('work/a.png', 'wb').write(b'\\x89PNG 40') and open('b.png', 'wb').write(b'\\x89PNG 41') and plt.show()", "40"},
	{"saved to a large file and left open", "import os; os.environ['SANDBOX_OUTPUT_DIR'] = os.getcwd()\nplt.figure(4).savefig('a.png')\nopen('a.png', 'wb').write(b'\\x89PNG' + bytes(2000000)) and None", ""},
	{"saved to a large file elsewhere", "import os; os.environ['SANDBOX_OUTPUT_DIR'] = '/elsewhere'\nplt.figure(4).savefig('a.png')\nopen('a.png', 'wb').write(b'\\x89PNG' + bytes(2000000)) and None", "4"},
	{"saved after show", "plt.figure(5); plt.show(); plt.savefig('b.png')\nprint(open('b.png', 'rb').read()[5:])", "5"},
	{"closed", "plt.figure(6); plt.close('all')", ""},
}

func (r figureRow) check(t *testing.T, results []sandboxmcp.RichResult) {
	t.Helper()
	var got []string
	for _, v := range results {
		if text, ok := v["image/png"].(string); ok {
			got = append(got, strings.TrimPrefix(decoded(t, text), "\x89PNG "))
		}
	}
	if d := cmp.Diff(r.want, strings.Join(got, " ")); d != "" {
		t.Errorf("pictures (-want +got) %s", d)
	}
}

// TestFiguresOfProgram: figures that are shown or left open are results of a program, each once.
// A program that displays nothing is the plain interpreter.
func TestFiguresOfProgram(t *testing.T) {
	const head = "import matplotlib.pyplot as plt\n"
	eachPython(t, func(t *testing.T, python string) {
		for _, r := range figureRows {
			for _, display := range []sandboxmcp.Display{sandboxmcp.DisplayStdout, sandboxmcp.DisplayResults, sandboxmcp.DisplayFigures} {
				t.Run(r.name+" "+string(display), func(t *testing.T) {
					t.Parallel()
					o := runIn(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: head + r.code, Display: display}, withStubs(t))
					r.check(t, o.Results)
					if strings.Contains(o.Stdout, "plain show") || strings.Contains(o.Stderr, "bootstrap") || r.name == "saved after show" && o.Stdout != "b'5'\n" {
						t.Errorf("got stdout %q, stderr %q, want those of the program alone", o.Stdout, o.Stderr)
					}
				})
			}
		}
		o := runIn(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: head + "plt.figure(1); plt.show()"}, withStubs(t))
		if len(o.Results) > 0 || o.Stdout != "plain show\n" {
			t.Errorf("display none: got results %v, stdout %q, want those of the plain interpreter", o.Results, o.Stdout)
		}
	})
}

// TestFiguresOfCell: a cell shows figures as a program does.
func TestFiguresOfCell(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		l := beginIn(t, kernel.Program{Interpreter: python}, withStubs(t))
		l.py(t, "import matplotlib.pyplot as plt")
		for _, r := range figureRows {
			s := l.py(t, r.code)
			t.Run(r.name, func(t *testing.T) { r.check(t, s.Results) })
		}
	})
}

// TestPartsOfFigures: a last value that is only parts of a figure is not shown beside it. Others are.
func TestPartsOfFigures(t *testing.T) {
	const head = "import matplotlib.pyplot as plt\n"
	texts := func(results []sandboxmcp.RichResult) (all []string) {
		for _, r := range results {
			if text, ok := r["text/plain"].(string); ok && r["image/png"] == nil {
				all = append(all, text)
			}
		}
		return all
	}
	eachPython(t, func(t *testing.T, python string) {
		l := beginIn(t, kernel.Program{Interpreter: python}, withStubs(t))
		for code, want := range map[string]string{"plt.plot()": "", "plt.plot()[0]": "", "plt.plot(), 5": "([<line>], 5)", "[a for a in plt.plot() if plt.close('all')] or plt.Line2D()": "<line>"} {
			o := runIn(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: head + code, Display: sandboxmcp.DisplayStdout}, withStubs(t))
			if got := strings.TrimSpace(o.Stdout); got != want {
				t.Errorf("%s: got stdout %q, %q, want %q", code, got, o.Stderr, want)
			}
			s := l.py(t, head+code)
			if got := strings.Join(texts(s.Results), " "); got != want {
				t.Errorf("%s in a session: got %q, want %q", code, got, want)
			}
			if s = l.py(t, "print(type(_).__name__)"); s.Stdout == "NoneType\n" {
				t.Errorf("%s in a session: _ is not the value", code)
			}
		}
	})
}

// TestTablesAreWide: pandas prints tables in full width, in programs and in cells, and is not
// imported for that.
func TestTablesAreWide(t *testing.T) {
	const show = "import pandas, pandas as pd\nprint(sorted(pd.options.items()))\n"
	const want = "[('display.max_columns', 20), ('display.width', 1000)]\n"
	const none = "import sys\nprint([m for m in ('pandas', 'matplotlib', 'IPython') if m in sys.modules])\n"
	eachPython(t, func(t *testing.T, python string) {
		for _, display := range []sandboxmcp.Display{"", sandboxmcp.DisplayStdout, sandboxmcp.DisplayFigures} {
			for code, want := range map[string]string{show: want, none: "[]\n"} {
				o := runIn(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: code, Display: display}, withStubs(t))
				if o.Stdout != want {
					t.Errorf("display %q, %q: got %q %q, want %q", display, code, o.Stdout, o.Stderr, want)
				}
			}
		}
		l := beginIn(t, kernel.Program{Interpreter: python}, withStubs(t))
		for _, c := range [][2]string{{none, "[]\n"}, {show, want}, {"pd.set_option('display.width', 5)", ""}, {"print(pd.options['display.width'])", "5\n"}} {
			if s := l.py(t, c[0]); s.Stdout != c[1] {
				t.Errorf("%q: got %+v, want %q", c[0], s, c[1])
			}
		}
	})
}

// TestIPythonDisplay: what IPython.display shows is a result, without IPython too.
func TestIPythonDisplay(t *testing.T) {
	const code = `from IPython.display import display, HTML, Markdown, JSON, Image, SVG, Latex, Math, clear_output
open('i.png', 'wb').write(b'\x89PNG file')
display(HTML('<b>x</b>'), Markdown('# m'), JSON({'a': [1]}))
display(Image(data=b'\x89PNG data'), Image('i.png'), Image(data=b'\xff\xd8\xff jpeg'))
display(SVG('<svg/>'), Latex('$x$'), Math('y'))
h = display({'a': 1}, display_id='d'); clear_output(); h.update(HTML('2'))
import IPython
assert IPython.get_ipython() is None
None`
	want := []string{
		"text/html <b>x</b>", "text/markdown # m", "application/json {\"a\":[1]}", "image/png \x89PNG data", "image/png \x89PNG file", "image/jpeg \xff\xd8\xff jpeg",
		"image/svg+xml <svg/>", "text/latex $x$", "text/latex $\\displaystyle y$", "application/json {\"a\":1}", "text/html 2",
	}
	eachPython(t, func(t *testing.T, python string) {
		if out, _ := os.ReadDir(filepath.Join(filepath.Dir(python), "..", "lib", "python3", "dist-packages", "IPython")); len(out) > 0 {
			t.Skip("the real IPython is installed")
		}
		l := begin(t, kernel.Program{Interpreter: python})
		s := l.py(t, code)
		if d := cmp.Diff(want, richest(t, s.Results)); d != "" || s.Stdout != "" || s.Stderr != "" {
			t.Errorf("cell: got stdout %q, stderr %q, (-want +got) %s", s.Stdout, s.Stderr, d)
		}
		if s := l.py(t, "HTML('<i>last</i>')"); len(s.Results) != 1 || s.Results[0]["text/html"] != "<i>last</i>" {
			t.Errorf("last expression: got %+v, want its HTML", s)
		}
		for _, display := range []sandboxmcp.Display{sandboxmcp.DisplayStdout, sandboxmcp.DisplayFigures} {
			o := run(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: code, Display: display})
			if d := cmp.Diff(want, richest(t, o.Results)); d != "" || o.Stdout != "" || o.Stderr != "" {
				t.Errorf("%s: got stdout %q, stderr %q, (-want +got) %s", display, o.Stdout, o.Stderr, d)
			}
		}
		if o := run(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: "import IPython"}); !strings.Contains(o.Stderr, "No module named 'IPython'") {
			t.Errorf("display none: got %q, want the plain interpreter's error", o.Stderr)
		}
	})
}

// TestDisplayOfTheRealIPython: display of the real IPython shows values in a program, too. It prints them
// in a program that displays nothing, and in processes that a program has forked.
func TestDisplayOfTheRealIPython(t *testing.T) {
	const code = `import os
from IPython.display import display, clear_output
display({'a': 1}); clear_output()
child = os.fork()
if not child:
    display('in a child')
    os._exit(0)
os.waitpid(child, 0)
None`
	const head = "import sys; sys.stdout.reconfigure(write_through=True)\n"
	eachPython(t, func(t *testing.T, python string) {
		for display, want := range map[sandboxmcp.Display][]string{
			"": nil, sandboxmcp.DisplayStdout: {`application/json {"a":1}`}, sandboxmcp.DisplayResults: {`application/json {"a":1}`}, sandboxmcp.DisplayFigures: {`application/json {"a":1}`},
		} {
			printed := "plain in a child\n"
			if want == nil {
				printed = "plain {'a': 1}\nplain\n" + printed
			}
			o := runIn(t, kernel.Program{Interpreter: python, Version: knownVersion(t, python), Code: head + code, Display: display}, withStubs(t))
			if d := cmp.Diff(want, richest(t, o.Results)); d != "" || o.Stdout != printed || o.Stderr != "" {
				t.Errorf("%s: got stdout %q, stderr %q, want %q, (-want +got) %s", display, o.Stdout, o.Stderr, printed, d)
			}
		}
	})
}

// richest returns the richest form of each result, with its type.
func richest(t *testing.T, results []sandboxmcp.RichResult) []string {
	t.Helper()
	var all []string
	for _, r := range results {
		for mime, form := range r {
			switch {
			case mime == "text/plain" || mime == "is_main_result":
			case strings.HasPrefix(mime, "image/p"), strings.HasPrefix(mime, "image/j"):
				text, _ := form.(string)
				all = append(all, mime+" "+decoded(t, text))
			case mime == "application/json":
				all = append(all, mime+" "+string(asJSON(t, form)))
			default:
				text, _ := form.(string)
				all = append(all, mime+" "+text)
			}
		}
	}
	return all
}

// TestIndentedCell: a cell that is indented as a whole runs, with its own line numbers.
func TestIndentedCell(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		l := begin(t, kernel.Program{Interpreter: python})
		for _, c := range []struct{ code, stdout, stderr string }{
			{"    x = 6\n    if x:\n        print(x * 7)\n", "42\n", ""},
			{"\n\t# words\n\tprint(1)\n", "1\n", ""},
			{"# words\n  print(2)\n", "2\n", ""},
			{"    s = '''a\n  b\n    c\n      d'''\n    print(s)", "a\n  b\nc\n  d\n", ""},
			{"x = '''\n    kept\n'''\nprint(x)", "\n    kept\n\n", ""},
			{"    !echo shell\n    print(3)", "shell\n3\n", ""},
			{"    x = 1\n    raise ValueError(x)", "", "line 2, in <module>\n    raise ValueError(x)\nValueError: 1\n"},
			{"    x = 1\n  y = 2\n", "", "IndentationError"},
			{"    x = (\n", "", "SyntaxError"},
		} {
			if s := l.py(t, c.code); s.Stdout != c.stdout || !strings.HasSuffix(s.Stderr, c.stderr) && !strings.Contains(s.Stderr, c.stderr+":") || (s.Stderr == "") != (c.stderr == "") {
				t.Errorf("%q: got stdout %q, stderr %q, want %q, %q", c.code, s.Stdout, s.Stderr, c.stdout, c.stderr)
			}
		}
	})
}

// TestUserSite: a package that is installed for the user during a session can be imported in it,
// also after an earlier attempt.
func TestUserSite(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		l := begin(t, kernel.Program{Interpreter: python})
		for _, c := range [][2]string{
			{"try:\n    import later_installed\nexcept ImportError as e: print(e)", "No module named 'later_installed'\n"},
			{"import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import site; open(site.getusersitepackages() + \"/later_installed.py\", \"w\").write(\"x = 7\")']).returncode)", "0\n"},
			{"import later_installed\nprint(later_installed.x)", "7\n"},
		} {
			if s := l.py(t, c[0]); s.Stdout != c[1] {
				t.Errorf("%q: got %+v, want %q", c[0], s, c[1])
			}
		}
	})
}

func decoded(t *testing.T, text string) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatalf("got %q, want base64: %v", text, err)
	}
	return string(data)
}

func asJSON(t *testing.T, form any) []byte {
	t.Helper()
	text, err := json.Marshal(form)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

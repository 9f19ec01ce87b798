package kernel_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// A value that is left out is told, and what the program reports after it is not lost.
func TestReadTellsWhatItLeavesOut(t *testing.T) {
	large := frame(`{"type":"display","data":{"text/plain":"` + strings.Repeat("x", 900<<10) + `"}}`)
	small := frame(`{"type":"display","data":{"text/plain":"x"}}`)
	end := frame(`{"type":"error","name":"ValueError"}`)
	for name, c := range map[string]struct {
		in      string
		results int
		cut     bool
		ended   bool
	}{
		"all fit":        {strings.Repeat(large, 9) + end, 9, false, true},
		"too large":      {strings.Repeat(large, 12) + end, 9, true, true},
		"small after it": {strings.Repeat(large, 10) + small + end, 9, true, true},
		"too many bytes": {strings.Repeat(large, 40) + end, 9, true, false},
		"as many":        {strings.Repeat(small, 256) + end, 256, false, true},
		"too many":       {strings.Repeat(small, 257) + end, 256, true, true},
	} {
		rep, err := kernel.Read(strings.NewReader(c.in), nil)
		if err != nil || len(rep.Results) != c.results || rep.Cut != c.cut || (rep.Error != nil) != c.ended {
			t.Errorf("%s: got %d results, cut %v, error %v, %v; want %d, %v, an error %v", name, len(rep.Results), rep.Cut, rep.Error, err, c.results, c.cut, c.ended)
		}
	}
}

// Drivers stop to show values that the server would leave out, and the report says so. An
// exception comes through all the same, and the next cell is not affected.
func TestProgramsThatShowTooMuch(t *testing.T) {
	check := func(t *testing.T, rep kernel.Report, results int, cut bool) {
		t.Helper()
		if len(rep.Results) != results || rep.Cut != cut || rep.Error == nil || rep.Error.Value != "wrong" {
			t.Errorf("got %d results, cut %v, error %+v; want %d, %v, an exception", len(rep.Results), rep.Cut, rep.Error, results, cut)
		}
	}
	const shows = "from IPython.display import display\nclass V:\n  def _repr_html_(self): return 'x' * 900000\nfor i in range(%): display(V())\nraise ValueError('wrong')"
	python := func(n string) string { return strings.Replace(shows, "%", n, 1) }
	t.Run("python", func(t *testing.T) {
		eachPython(t, func(t *testing.T, path string) {
			for n, cut := range map[string]bool{"9": false, "50": true} {
				check(t, run(t, kernel.Program{Interpreter: path, Display: sandboxmcp.DisplayResults, Code: python(n)}).Report, 9, cut)
			}
			l := begin(t, kernel.Program{Interpreter: path})
			check(t, l.py(t, python("50")).Report, 9, true)
			check(t, l.py(t, python("9")).Report, 9, false)
		})
	})
	t.Run("node", func(t *testing.T) {
		path, version := node(t)
		js := func(n string) string {
			return "for (let i = 0; i < " + n + "; i++) require('sandbox').display({toMIMEBundle: () => ({'text/html': 'x'.repeat(900000), 'text/plain': 'x'})});\nthrow new Error('wrong')"
		}
		l := begin(t, kernel.Program{Language: sandboxmcp.Node, Interpreter: path, Version: version})
		check(t, l.py(t, js("50")).Report, 9, true)
		check(t, l.py(t, js("9")).Report, 9, false)
	})
}

// An exception whose message is long comes through, also if its characters take twelve bytes in a
// frame, and the interpreter of a session goes on.
func TestLongMessagesComeThrough(t *testing.T) {
	const long = "'\U0001F600' * 60000"
	check := func(t *testing.T, rep kernel.Report, err error) {
		t.Helper()
		if e := rep.Error; err != nil || e == nil || !strings.HasPrefix(e.Value, "\U0001F600\U0001F600") || len(e.Value) < 60<<10 {
			t.Errorf("got %.200v and %v, want the exception with its message", e, err)
		}
	}
	eachPython(t, func(t *testing.T, path string) {
		check(t, run(t, kernel.Program{Interpreter: path, Code: "raise ValueError(" + long + ")"}).Report, nil)
		l := begin(t, kernel.Program{Interpreter: path})
		s := l.py(t, "kept = 1\nraise ValueError("+long+")")
		check(t, s.Report, s.Err)
		s = l.py(t, "%pip install "+strings.Repeat("package ", 3000))
		if s.Err != nil || s.Error == nil || s.Error.Name != "UsageError" {
			t.Errorf("many packages: got %v and %.200v, want a UsageError", s.Err, s.Error)
		}
		if s = l.py(t, "kept"); s.Err != nil || len(s.Results) != 1 {
			t.Errorf("the next cell: got %+v, want its variables", s)
		}
	})
}

// Values that threads show at the same time come through whole, and so does what follows them.
func TestThreadsShowAtOnce(t *testing.T) {
	const code = "from IPython.display import display\nimport threading\nclass V:\n  def _repr_html_(self): return 'x' * 200000\n" +
		"def show():\n  for i in range(9): display(V())\n" +
		"all = [threading.Thread(target=show) for i in range(4)]\nfor t in all: t.start()\nfor t in all: t.join()\nraise ValueError('wrong')"
	eachPython(t, func(t *testing.T, path string) {
		rep := run(t, kernel.Program{Interpreter: path, Display: sandboxmcp.DisplayResults, Code: code}).Report
		whole := 0
		for _, r := range rep.Results {
			if text, _ := r["text/html"].(string); len(text) == 200000 {
				whole++
			}
		}
		if whole != 36 || rep.Error == nil {
			t.Errorf("got %d values and the error %v, want 36 and an exception", whole, rep.Error)
		}
	})
}

// If the driver cuts the text of a value, the shown text ends with a mark.
func TestLongTextsOfValuesAreMarked(t *testing.T) {
	check := func(t *testing.T, rep kernel.Report, length int) {
		t.Helper()
		if len(rep.Results) != 1 {
			t.Fatalf("got %d values and the error %v, want one value", len(rep.Results), rep.Error)
		}
		text, _ := rep.Results[0]["text/plain"].(string)
		if cut := strings.HasSuffix(text, "x ..."); len(text) != length || cut != (length > 65536) {
			t.Errorf("got a text of %d bytes, marked %v; want %d", len(text), cut, length)
		}
	}
	eachPython(t, func(t *testing.T, path string) {
		l := begin(t, kernel.Program{Interpreter: path})
		for code, length := range map[string]int{"'x' * 65534": 65536, "'x' * 65535": 65540} {
			check(t, run(t, kernel.Program{Interpreter: path, Display: sandboxmcp.DisplayResults, Code: code}).Report, length)
			check(t, l.py(t, code).Report, length)
			check(t, l.py(t, "display("+code+")").Report, length)
		}
	})
}

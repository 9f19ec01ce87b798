package interpreter_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// compiler is a machine that compiles.
type compiler struct {
	machine

	code     []byte // nil: it has none yet
	prepared func(ctx context.Context)
	asked    int // calls of Compiled
}

func (c *compiler) Compiled(_ backend.Interpreter, name string, text []byte) ([]byte, func(context.Context)) {
	c.asked++
	if wantName, wantText := kernel.PythonDriver(); name != wantName || string(text) != string(wantText) {
		return []byte("of another text"), nil
	}
	return c.code, c.prepared
}

// driver returns the file of a planned process that its interpreter runs first.
func driver(p backend.Process) string {
	name, _ := kernel.PythonDriver()
	i := slices.IndexFunc(p.Program, func(f backend.ProgramFile) bool { return f.Name == name })
	if i < 0 {
		return ""
	}
	return string(p.Program[i].Data)
}

// TestPlanCompilesTheDriver: programs get the compiled driver if there is one. If there is none,
// it is made in the background for later runs, also if the Finder's context ends meanwhile.
func TestPlanCompilesTheDriver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := interpreter.New(ctx, interpreter.Config{StateDir: t.TempDir()})
	var prepared []error
	begin := make(chan struct{})
	c := &compiler{prepared: func(ctx context.Context) { <-begin; prepared = append(prepared, ctx.Err()) }}
	plan := func(b backend.Backend, l sandboxmcp.Language) backend.Process {
		t.Helper()
		i := interpreter.Interpreter{Interpreter: map[sandboxmcp.Language]backend.Interpreter{sandboxmcp.Python: python("/usr/bin/python3"), sandboxmcp.Node: node()}[l]}
		p, err := f.Plan(b, sandboxmcp.Request{Language: l, Code: "1"}, i, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	_, text := kernel.PythonDriver()
	if got := driver(plan(c, sandboxmcp.Python)); got != string(text) {
		t.Errorf("before it is compiled: got %.40q as the driver, want its text", got)
	}
	c.code, c.prepared = []byte("compiled"), nil
	if got := driver(plan(c, sandboxmcp.Python)); got != "compiled" {
		t.Errorf("once it is compiled: got %.40q as the driver, want the compiled form", got)
	}
	if got := driver(plan(&c.machine, sandboxmcp.Python)); got != string(text) {
		t.Errorf("a backend that does not compile: got %.40q as the driver, want its text", got)
	}
	if got := driver(plan(c, sandboxmcp.Node)); got != "" || c.asked != 2 {
		t.Errorf("node: got %.40q and %d questions in all, want no driver of Python and 2", got, c.asked)
	}
	cancel()
	close(begin)
	f.Wait()
	if d := cmp.Diff([]error{nil}, prepared); d != "" {
		t.Errorf("the context's error when it is compiled (-want +got):\n%s", d)
	}
}

// TestPlanOfANetwork: variables that describe the network are those of the program, unless it
// sets them itself.
func TestPlanOfANetwork(t *testing.T) {
	r := sandboxmcp.Request{Language: sandboxmcp.Python, Env: map[string]string{"NO_PROXY": "mine"}}
	p, err := finder(t, interpreter.Config{StateDir: t.TempDir()}).Plan(&machine{}, r, interpreter.Interpreter{Interpreter: python("/usr/bin/python3")}, map[string]string{"HTTP_PROXY": "theirs", "NO_PROXY": "theirs"}, "")
	if err != nil || !slices.Contains(p.Env, "HTTP_PROXY=theirs") || !slices.Contains(p.Env, "NO_PROXY=mine") {
		t.Errorf("got %v and %v, want HTTP_PROXY=theirs and NO_PROXY=mine", p.Env, err)
	}
}

// TestPlanRefuses: what cannot be started is refused before a sandbox is asked for.
func TestPlanRefuses(t *testing.T) {
	f := finder(t, interpreter.Config{StateDir: t.TempDir()})
	for name, c := range map[string]struct {
		r    sandboxmcp.Request
		path string
		want sandboxmcp.Code
	}{
		"ADirectory":       {sandboxmcp.Request{Language: sandboxmcp.Python, FileName: "a/b.py"}, "/usr/bin/python3", sandboxmcp.CodeInvalidFilename},
		"OursByName":       {sandboxmcp.Request{Language: sandboxmcp.Python, FileName: ".importlib_bootstrap.py"}, "/usr/bin/python3", sandboxmcp.CodeInvalidFilename},
		"TheLoader":        {sandboxmcp.Request{Language: sandboxmcp.Shell, Env: map[string]string{"LD_PRELOAD": "x"}}, "/bin/bash", sandboxmcp.CodeInvalidArgument},
		"NoAbsolutePath":   {sandboxmcp.Request{Language: sandboxmcp.Shell}, "bash", sandboxmcp.CodeInternal},
		"NoSuchLanguage":   {sandboxmcp.Request{Language: "cobol"}, "/usr/bin/cobol", sandboxmcp.CodeUnsupportedLanguage},
		"NothingIsRefused": {sandboxmcp.Request{Language: sandboxmcp.Shell}, "/bin/bash", ""},
	} {
		_, err := f.Plan(&machine{}, c.r, interpreter.Interpreter{Interpreter: backend.Interpreter{Language: c.r.Language, Path: c.path}}, nil, "")
		if got := sandboxmcp.CodeOf(err); got != c.want {
			t.Errorf("%s: got %v with the code %q, want %q", name, err, got, c.want)
		}
	}
}

// imports is a program that imports packages of the set of withSet.
func imports() sandboxmcp.Request {
	return sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas\n"}
}

// frames are the modules that are imported ahead for programs that seem to use data frames.
var frames = []string{"numpy", "pandas", "pyarrow.pandas_compat", "pyarrow.vendored.version", "pandas.io.formats.string", "pandas.io.formats.csvs", "pandas.io.formats.html"}

// TestOnlyHashedSetsAreImportedAhead: nothing of a set is imported before all its files were
// hashed, nor after one of them was found changed.
func TestOnlyHashedSetsAreImportedAhead(t *testing.T) {
	change := func(t *testing.T, site string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(site, "numpy.py"), []byte("1/0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, poison := range map[string]bool{"Whole": false, "Changed": true} {
		t.Run(name, func(t *testing.T) {
			state, site := withSet(t)
			if poison {
				change(t, site)
			}
			f := interpreter.New(t.Context(), interpreter.Config{StateDir: state})
			i := interpreter.Interpreter{Interpreter: python("/usr/bin/python3"), Sets: []string{"/opt/sandboxmcp/science"}}
			got, check := f.Preload(imports(), i)
			err := check(t.Context(), false)
			if poison {
				if err == nil || !strings.Contains(err.Error(), "numpy.py was changed") {
					t.Errorf("before the import of a set that was changed: got %v, want the file named", err)
				}
				if got, check = f.Preload(imports(), i); got != nil || check != nil {
					t.Errorf("a set that was changed: got %v, want nothing", got)
				}
				return
			}
			if err != nil {
				t.Errorf("before the import: got %v, want no error", err)
			}
			if d := cmp.Diff(frames, got); d != "" {
				t.Fatalf("a whole set (-want +got):\n%s", d)
			}
			if err := check(t.Context(), true); err != nil {
				t.Errorf("after the import: got %v, want no error", err)
			}
			p, err := f.Plan(&machine{}, imports(), i, nil, "")
			if err != nil || p.Prestart == nil || p.Prestart.Fork == nil || !strings.Contains(string(p.Prestart.Fork.Load), `"pandas"`) || p.Prestart.Fork.Check == nil {
				t.Errorf("got the plan %+v and %v, want a fork that loads pandas and is checked", p.Prestart, err)
			}
			change(t, site)
			if err := check(t.Context(), true); err == nil || !strings.Contains(err.Error(), "numpy.py was changed") {
				t.Errorf("a file that was changed meanwhile: got %v, want it named", err)
			}
			if got, _ := f.Preload(imports(), i); got != nil {
				t.Errorf("after the change: got %v, want nothing", got)
			}
		})
	}
}

// TestWhatIsNeverImportedAhead: modules are imported ahead only for Python programs with sets,
// and if only root can add packages beside them.
func TestWhatIsNeverImportedAhead(t *testing.T) {
	state, _ := withSet(t)
	f := interpreter.New(t.Context(), interpreter.Config{StateDir: state})
	seen := interpreter.Interpreter{Interpreter: python("/usr/bin/python3"), Sets: []string{"/opt/sandboxmcp/science"}}
	none, open, other := seen, seen, seen
	none.Sets, open.TrustedSite, other.Version = nil, false, "3.11.2"
	for name, c := range map[string]struct {
		r    sandboxmcp.Request
		i    interpreter.Interpreter
		want bool
	}{
		"Imports":       {imports(), seen, true},
		"ImportsNone":   {sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import os"}, seen, false},
		"Node":          {sandboxmcp.Request{Language: sandboxmcp.Node, Code: "import pandas"}, seen, false},
		"NoSets":        {imports(), none, false},
		"OthersWrite":   {imports(), open, false},
		"AnotherPython": {imports(), other, false},
	} {
		if got, check := f.Preload(c.r, c.i); (got != nil) != c.want || (check != nil) != c.want {
			t.Errorf("%s: got %v, want something: %v", name, got, c.want)
		}
	}
}

// TestWaitingInterpretersKeepTheirDriver: an interpreter that was started before the driver was compiled can
// still be used after that.
func TestWaitingInterpretersKeepTheirDriver(t *testing.T) {
	f := interpreter.New(t.Context(), interpreter.Config{StateDir: t.TempDir()})
	c := &compiler{}
	plan := func() backend.Process {
		t.Helper()
		p, err := f.Plan(c, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "1"}, interpreter.Interpreter{Interpreter: python("/usr/bin/python3")}, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := plan()
	c.code = []byte("compiled")
	after := plan()
	if driver(after) != "compiled" {
		t.Errorf("got the driver %.30q, want the compiled one", driver(after))
	}
	alone := func(p backend.Process) []backend.ProgramFile {
		if p.Prestart.Alone != nil {
			return p.Prestart.Alone.Program
		}
		return p.Prestart.Program
	}
	if d := cmp.Diff(alone(before), alone(after)); d != "" || len(alone(before)) != 1 {
		t.Errorf("what waits (-before +after):\n%.300s", d)
	}
}

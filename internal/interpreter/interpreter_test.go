package interpreter_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// machine is a backend that has interpreters and no sandboxes.
type machine struct {
	backend.Backend

	has   map[sandboxmcp.Language]backend.Interpreter
	asked []sandboxmcp.Language
}

func (m *machine) Interpreter(_ context.Context, l sandboxmcp.Language) (backend.Interpreter, error) {
	m.asked = append(m.asked, l)
	i, ok := m.has[l]
	if !ok {
		return i, sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "there is no %s", l)
	}
	return i, nil
}

// python is an interpreter that a set of tag cp312 fits.
func python(path string) backend.Interpreter {
	return backend.Interpreter{Language: sandboxmcp.Python, Path: path, Version: "3.12.4", TrustedSite: true, TrustedForPreload: true}
}

func node() backend.Interpreter {
	return backend.Interpreter{Language: sandboxmcp.Node, Path: "/usr/bin/node", Version: "20.1.0"}
}

// withSet writes a package set of the tag cp312 into a state directory, and returns both.
func withSet(t *testing.T) (state, site string) {
	t.Helper()
	state = filepath.Join(t.TempDir(), "state")
	set := testkit.PackageSet{Tag: "cp312", Files: map[string]string{"numpy.py": "", "pandas.py": "import numpy\n"}, Wheels: []testkit.Wheel{{Name: "NumPy", Version: "2.0"}, {Name: "pandas", Version: "2.2"}}}
	site, err := set.Write(environment.Dir(state))
	if err != nil {
		t.Fatal(err)
	}
	return state, site
}

// finder returns a Finder whose background work ends with the test.
func finder(t *testing.T, c interpreter.Config) *interpreter.Finder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := interpreter.New(ctx, c)
	t.Cleanup(func() { cancel(); f.Wait() })
	return f
}

// systemPython returns the file that programs start as python3.
func systemPython(t *testing.T) string {
	t.Helper()
	for dir := range strings.SplitSeq(kernel.SearchPath, ":") {
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "python3")); err == nil {
			return real
		}
	}
	testkit.Need(t, "python", false, "no python3 in "+kernel.SearchPath)
	return ""
}

// TestFindAddsTheSetsOfAnInterpreter: programs see the sets that fit the interpreter, and those
// of another language the sets of the backend's Python.
func TestFindAddsTheSetsOfAnInterpreter(t *testing.T) {
	const science = "/opt/sandboxmcp/science"
	state, site := withSet(t)
	real := systemPython(t)
	other := python("/opt/other/bin/python3.11")
	other.Version = "3.11.2"
	for name, c := range map[string]struct {
		language sandboxmcp.Language
		python   backend.Interpreter
		none     bool // no state directory
		want     []string
		asked    []sandboxmcp.Language
	}{
		"Python":            {language: sandboxmcp.Python, python: python("/opt/a/python3"), want: []string{science}, asked: []sandboxmcp.Language{sandboxmcp.Python}},
		"PythonOfNoSet":     {language: sandboxmcp.Python, python: other, asked: []sandboxmcp.Language{sandboxmcp.Python}},
		"Node":              {language: sandboxmcp.Node, python: python(real), want: []string{science}, asked: []sandboxmcp.Language{sandboxmcp.Node, sandboxmcp.Python}},
		"NodeAnotherPython": {language: sandboxmcp.Node, python: python(real + "-of-another"), want: []string{science}, asked: []sandboxmcp.Language{sandboxmcp.Node, sandboxmcp.Python}},
		"NodeNoPython":      {language: sandboxmcp.Node, asked: []sandboxmcp.Language{sandboxmcp.Node, sandboxmcp.Python}},
		"NodeNoSets":        {language: sandboxmcp.Node, python: python(real), none: true, asked: []sandboxmcp.Language{sandboxmcp.Node, sandboxmcp.Python}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := state
			if c.none {
				dir = t.TempDir()
			}
			m := &machine{has: map[sandboxmcp.Language]backend.Interpreter{sandboxmcp.Node: node()}}
			if c.python.Path != "" {
				m.has[sandboxmcp.Python] = c.python
			}
			i, err := finder(t, interpreter.Config{StateDir: dir, MinTier: sandboxmcp.TierL3}).Find(t.Context(), m, c.language)
			if err != nil || i.Path != m.has[c.language].Path {
				t.Fatalf("got %+v and %v, want the interpreter of %s", i, err, c.language)
			}
			var trees []backend.Tree
			for _, inside := range c.want {
				trees = append(trees, backend.Tree{Host: filepath.Dir(site), Inside: inside})
			}
			if d := cmp.Diff([]any{c.want, trees}, []any{i.Sets, i.Trees}); d != "" {
				t.Errorf("sets and trees (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.asked, m.asked); d != "" {
				t.Errorf("languages that the backend was asked for (-want +got):\n%s", d)
			}
		})
	}
}

// TestFindLeadsToPython: programs of other languages see the files of the backend's Python, and
// the names that the PATH does not lead to it. All see what all need, if they are to share a sandbox.
func TestFindLeadsToPython(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"python3.11", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("python3.11", filepath.Join(dir, "python3")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("other", filepath.Join(dir, "python")); err != nil {
		t.Fatal(err)
	}
	py, js := python(filepath.Join(dir, "python3.11")), node()
	py.Trees, js.Trees = backend.Trees(dir), backend.Trees("/opt/node", dir)
	m := &machine{has: map[sandboxmcp.Language]backend.Interpreter{sandboxmcp.Python: py, sandboxmcp.Node: js, sandboxmcp.Shell: {Language: sandboxmcp.Shell, Path: "/bin/bash"}}}
	f := finder(t, interpreter.Config{StateDir: t.TempDir(), MinTier: sandboxmcp.TierL3})
	for language, want := range map[sandboxmcp.Language][]backend.Tree{
		sandboxmcp.Shell: backend.Trees(dir), sandboxmcp.Node: backend.Trees(dir, "/opt/node"), sandboxmcp.Python: backend.Trees(dir),
	} {
		i, err := f.Find(t.Context(), m, language)
		if err != nil {
			t.Fatal(err)
		}
		path := py.Path
		if language == sandboxmcp.Python {
			path = ""
		}
		if d := cmp.Diff([]any{path, []string{"python"}, want}, []any{i.Python, i.Names, i.Trees}); d != "" {
			t.Errorf("%s: Python, names and trees (-want +got):\n%s", language, d)
		}
		if d := cmp.Diff(backend.Trees(dir, "/opt/node"), f.Beside(t.Context(), m, i).Trees); d != "" {
			t.Errorf("%s beside the others: trees (-want +got):\n%s", language, d)
		}
	}
	// A Python whose files would show the state directory stays out of other languages' sandboxes.
	f = finder(t, interpreter.Config{StateDir: dir, MinTier: sandboxmcp.TierL3})
	if i, err := f.Find(t.Context(), m, sandboxmcp.Shell); err != nil || i.Python != "" || len(i.Trees) > 0 {
		t.Errorf("got %+v, %v, want a shell without Python", i, err)
	}
}

// TestFindRefusesAMissingLanguage: the backend says what is missing.
func TestFindRefusesAMissingLanguage(t *testing.T) {
	state, _ := withSet(t)
	m := &machine{has: map[sandboxmcp.Language]backend.Interpreter{sandboxmcp.Python: python("/usr/bin/python3")}}
	got, err := finder(t, interpreter.Config{StateDir: state}).Find(t.Context(), m, sandboxmcp.Node)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeRuntimeUnavailable || got.Path != "" {
		t.Errorf("got %+v and %v, want %s", got, err, sandboxmcp.CodeRuntimeUnavailable)
	}
}

// TestWithLeavesTheInterpreterOfOthersAlone: sets of one request are not seen by another that
// has the same interpreter. Where sandboxes may have no mounts, programs find a set by its path
// on the host.
func TestWithLeavesTheInterpreterOfOthersAlone(t *testing.T) {
	found := python("/usr/bin/python3")
	found.Trees = append(make([]backend.Tree, 0, 4), backend.Tree{Host: "/usr", Inside: "/usr"})
	set := func(name string) environment.Set {
		return environment.Set{Manifest: environment.Manifest{Name: name}, Dir: "/state/" + name}
	}
	one := interpreter.With(found, []environment.Set{set("a"), set("b")}, sandboxmcp.TierL2)
	two := interpreter.With(found, []environment.Set{set("c")}, sandboxmcp.TierL1)
	trees := func(names ...string) []backend.Tree {
		all := []backend.Tree{{Host: "/usr", Inside: "/usr"}}
		for _, n := range names {
			all = append(all, backend.Tree{Host: "/state/" + n, Inside: "/opt/sandboxmcp/" + n})
		}
		return all
	}
	if d := cmp.Diff([][]backend.Tree{trees(), trees("a", "b"), trees("c")}, [][]backend.Tree{found.Trees, one.Trees, two.Trees}); d != "" {
		t.Errorf("trees (-want +got):\n%s", d)
	}
	if d := cmp.Diff([][]string{{"/opt/sandboxmcp/a", "/opt/sandboxmcp/b"}, {"/opt/sandboxmcp/c", "/state/c"}}, [][]string{one.Sets, two.Sets}); d != "" {
		t.Errorf("sets (-want +got):\n%s", d)
	}
}

// TestProgramOfARequest: the driver gets all that the request and the interpreter say. Only
// programs that see sets get their variables.
func TestProgramOfARequest(t *testing.T) {
	r := sandboxmcp.Request{Language: sandboxmcp.Python, Code: "1", FileName: "a.py", Display: sandboxmcp.DisplayResults, Env: map[string]string{"A": "b"}}
	i := interpreter.Interpreter{Interpreter: python("/usr/bin/python3"), Sets: []string{"/opt/sandboxmcp/a"}}
	i.Virtual = true
	want := kernel.Program{
		Language: sandboxmcp.Python, Code: "1", FileName: "a.py", Display: sandboxmcp.DisplayResults, Env: map[string]string{"A": "b"}, Driver: []byte("compiled"),
		Interpreter: "/usr/bin/python3", Version: "3.12.4", Virtual: true, Trusted: true, Sets: []string{"/opt/sandboxmcp/a"}, Defaults: environment.Variables(),
	}
	if d := cmp.Diff(want, i.Program(r, []byte("compiled"))); d != "" {
		t.Errorf("with a set (-want +got):\n%s", d)
	}
	i.Sets, want.Sets, want.Defaults = nil, nil, nil
	if d := cmp.Diff(want, i.Program(r, []byte("compiled"))); d != "" {
		t.Errorf("without a set (-want +got):\n%s", d)
	}
}

// TestPackagesOfSets: which packages a program seems to import, and which it could.
func TestPackagesOfSets(t *testing.T) {
	state, _ := withSet(t)
	f := finder(t, interpreter.Config{StateDir: state})
	seen := interpreter.Interpreter{Interpreter: python("/usr/bin/python3"), Sets: []string{"/opt/sandboxmcp/science"}}
	got := map[string]string{
		"imports": f.Packages(imports(), seen),
		"none":    f.Packages(sandboxmcp.Request{Language: sandboxmcp.Python, Code: "pandas"}, seen),
		"no sets": f.Packages(imports(), interpreter.Interpreter{Interpreter: seen.Interpreter}),
		"node":    f.Packages(sandboxmcp.Request{Language: sandboxmcp.Node, Code: "import pandas"}, seen),
	}
	if want := map[string]string{"imports": strings.Join(frames, ","), "none": "", "no sets": "", "node": ""}; !maps.Equal(got, want) {
		t.Errorf("Packages: got %v, want %v", got, want)
	}
	runtime := sandboxmcp.Runtime{Language: sandboxmcp.Python, Path: "/usr/bin/python3", Version: "3.12.4", Available: true}
	gone, other, node := runtime, runtime, runtime
	gone.Available, other.Version, node.Language = false, "3.11.2", sandboxmcp.Node
	installed := [][]string{f.Installed(runtime), f.Installed(gone), f.Installed(other), f.Installed(node)}
	if d := cmp.Diff([][]string{{"numpy==2.0", "pandas==2.2"}, nil, nil, nil}, installed); d != "" {
		t.Errorf("Installed of a Python, one that is gone, another and node (-want +got):\n%s", d)
	}
}

// TestASetThatOthersCanWriteIsNotSeen: Find leaves it out, as if it were not there.
func TestASetThatOthersCanWriteIsNotSeen(t *testing.T) {
	state, site := withSet(t)
	m := &machine{has: map[sandboxmcp.Language]backend.Interpreter{sandboxmcp.Python: python("/usr/bin/python3")}}
	f := finder(t, interpreter.Config{StateDir: state})
	if err := os.Chmod(filepath.Dir(site), 0o777); err != nil {
		t.Fatal(err)
	}
	i, err := f.Find(t.Context(), m, sandboxmcp.Python)
	if err != nil || i.Sets != nil || i.Trees != nil {
		t.Errorf("got %v, %v and %v, want the interpreter without sets", i.Sets, i.Trees, err)
	}
}

// TestShows: an interpreter shows what lies below one of its trees, also through a link.
func TestShows(t *testing.T) {
	dir := t.TempDir()
	tree, link := filepath.Join(dir, "tree"), filepath.Join(dir, "link")
	if err := os.MkdirAll(filepath.Join(tree, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(tree, link); err != nil {
		t.Fatal(err)
	}
	i := interpreter.Interpreter{Interpreter: backend.Interpreter{Trees: []backend.Tree{{Host: filepath.Join(dir, "other")}, {Host: tree}}}}
	for p, want := range map[string]string{
		tree: tree, filepath.Join(tree, "state"): tree, filepath.Join(link, "state"): tree,
		dir: "", tree + "2": "", filepath.Join(dir, "beside"): "",
	} {
		if got := i.Shows(p); got != want {
			t.Errorf("%s: got %q, want %q", p, got, want)
		}
	}
}

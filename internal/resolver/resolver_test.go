package resolver_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/resolver"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// record is a module in the output of the compiler.
func record(number, size uint32, code string) string {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, number), size)
	return string(head) + code
}

func TestStoreWritesBesideModulesOnly(t *testing.T) {
	const tag = "\x0bcpython-311"
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"whole":               {tag + record(1, 3, "abc") + record(0, 2, "xy"), true},
		"empty":               {"", false},
		"no module":           {tag, true},
		"a tag that is a way": {"\x08../../ab" + record(0, 1, "x"), false},
		"a long tag":          {"\xff" + strings.Repeat("a", 255), false},
		"another module":      {tag + record(2, 1, "x"), false},
		"a large module":      {tag + record(0, 1<<31, "x"), false},
		"an end too early":    {tag + record(0, 3, "x"), false},
		"half a head":         {tag + "\x00\x00", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, map[string]string{"a.py": "", "p/b.py": "", "p/__pycache__/kept.pyc": "kept"})
			err := resolver.Store(dir, []string{"a.py", "p/b.py"}, strings.NewReader(c.text))
			if (err == nil) != c.ok {
				t.Errorf("got %v, want ok %v", err, c.ok)
			}
			if name == "an end too early" {
				if left, _ := filepath.Glob(filepath.Join(dir, "__pycache__/*")); len(left) != 0 {
					t.Errorf("got %v, want no part of a module's code: Python would not read the module's text", left)
				}
			}
			if name != "whole" {
				return
			}
			for file, want := range map[string]string{"__pycache__/a.cpython-311.pyc": "xy", "p/__pycache__/b.cpython-311.pyc": "abc", "p/__pycache__/kept.pyc": "kept"} {
				if got, err := os.ReadFile(filepath.Join(dir, file)); string(got) != want {
					t.Errorf("%s: got %q, %v; want %q", file, got, err, want)
				}
			}
		})
	}
}

func TestStoreFollowsNoLink(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	put(t, dir, map[string]string{"p/a.py": ""})
	if err := os.Symlink(out, filepath.Join(dir, "p/__pycache__")); err != nil {
		t.Fatal(err)
	}
	if err := resolver.Store(dir, []string{"p/a.py"}, strings.NewReader("\x0bcpython-311"+record(0, 1, "x"))); err == nil {
		t.Error("got nil, want an error")
	}
	if left, _ := os.ReadDir(out); len(left) != 0 {
		t.Errorf("got %v outside of the directory", left)
	}
}

// TestCompile: what the program compiles is what Python loads, and no code of a module is run.
func TestCompile(t *testing.T) {
	python, err := exec.LookPath("python3")
	testkit.Need(t, "python", err == nil, "python3 is not here")
	dir := t.TempDir()
	put(t, dir, map[string]string{"good.py": "says = 6 * 7\n", "p/__init__.py": "open('ran', 'w')\n", "bad.py": "def\n", "text.txt": "def\n"})
	text, stdin, modules, err := resolver.Compile(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bad.py", "good.py", "p/__init__.py"}, modules); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	work := t.TempDir()
	run := exec.CommandContext(t.Context(), python, "-c", text)
	run.Dir, run.Stdin = work, bytes.NewReader(stdin)
	if out, err := run.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("got %s, %v", out, err)
	}
	code, err := os.Open(filepath.Join(work, resolver.Compiled))
	if err != nil {
		t.Fatal(err)
	}
	defer code.Close()
	if err := resolver.Store(dir, modules, code); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "good.py"), []byte("says = 'the text was read again'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import good; print(good.says)", dir).Output()
	if string(out) != "42\n" {
		t.Errorf("got %q, %v; want 42, from the compiled module", out, err)
	}
	for _, ran := range []string{"ran", filepath.Join(work, "ran")} {
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s is there: a module was run", ran)
		}
	}
}

func TestProgram(t *testing.T) {
	for _, l := range []sandboxmcp.Language{sandboxmcp.Python, sandboxmcp.Node} {
		text, stdin, err := resolver.Program(l, resolver.Run{Args: []string{"a b"}})
		var got resolver.Run
		if err != nil || text == "" || json.Unmarshal(stdin, &got) != nil {
			t.Fatalf("got %q, %v", stdin, err)
		}
		if diff := cmp.Diff(resolver.Run{Args: []string{"a b"}, Env: map[string]string{}, Files: map[string]string{}}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

package runtimes_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/runtimes"
)

func TestCompiledRunsAsTheText(t *testing.T) {
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip("no /usr/bin/python3 here")
	}
	cacheFile := filepath.Join(t.TempDir(), "runtimes.json")
	cfg := runtimes.Config{Path: "/usr/bin", CacheFile: cacheFile}
	src := runtimes.NewSource("where.py", []byte("import sys\nprint('h\u00e9llo', sys._getframe().f_code.co_filename)\n"))
	set := resolve(t, cfg)
	in, err := set.Find(t.Context(), sandboxmcp.Python)
	if err != nil {
		t.Fatal(err)
	}
	code, prepare := set.Compiled(in.Path, src)
	if code != nil || prepare == nil {
		t.Fatalf("before: got %d bytes, prepare %v; want none, and a function that compiles", len(code), prepare != nil)
	}
	if _, again := set.Compiled(in.Path, src); again != nil {
		t.Error("a second caller: got a function that compiles, want none")
	}
	prepare(t.Context())
	for what, s := range map[string]*runtimes.Set{"the same set": set, "another process": resolve(t, cfg)} {
		if code, prepare = s.Compiled(in.Path, src); code == nil || prepare != nil {
			t.Fatalf("%s: got %d bytes, prepare %v; want code, and no function", what, len(code), prepare != nil)
		}
	}
	file := filepath.Join(t.TempDir(), "any name")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), in.Path, file).CombinedOutput()
	if want := "h\u00e9llo where.py\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
	beside := runtimes.NewSource("beside.py", []byte("pass"))
	if _, prepare = set.Compiled(in.Path, beside); prepare == nil {
		t.Fatal("a text of another name: got no function that compiles, want one")
	}
	prepare(t.Context())
	for _, s := range []runtimes.Source{src, beside} {
		if code, _ := set.Compiled(in.Path, s); code == nil {
			t.Error("two texts: got no code of one, want both kept")
		}
	}
	other := runtimes.NewSource("where.py", []byte("pass"))
	if code, prepare := resolve(t, cfg).Compiled(in.Path, other); code != nil || prepare == nil {
		t.Errorf("another text: got %d bytes, prepare %v; want none, and a function that compiles", len(code), prepare != nil)
	}
	if found, err := resolve(t, cfg).Find(t.Context(), sandboxmcp.Python); err != nil || found.Path != in.Path {
		t.Errorf("the rest of the cache: got %+v, %v; want the interpreter as before", found, err)
	}
}

// An interpreter that cannot compile is asked once, and text is run as before.
func TestCompiledGivesUp(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	put(t, filepath.Join(dir, "python3"), "#!/bin/sh\necho run >> '"+count+"'\nexit 1\n")
	set := resolve(t, runtimes.Config{Path: dir})
	python := filepath.Join(dir, "python3")
	src := runtimes.NewSource("a.py", []byte("pass"))
	if code, prepare := set.Compiled(filepath.Join(dir, "gone"), src); code != nil || prepare != nil {
		t.Error("an interpreter that is not there: got code or a function, want neither")
	}
	for range 3 {
		code, prepare := set.Compiled(python, src)
		if code != nil {
			t.Fatalf("got %d bytes of code, want none", len(code))
		}
		if prepare != nil {
			prepare(context.WithoutCancel(t.Context()))
		}
	}
	if got := runs(t, count); got != 1 {
		t.Errorf("it was started %d times, want 1", got)
	}
}

// TestCompiledFiles: code is kept in private files of a bounded number. A file that others can write to is not used.
func TestCompiledFiles(t *testing.T) {
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip("no /usr/bin/python3 here")
	}
	cacheFile := filepath.Join(t.TempDir(), "runtimes.json")
	cfg := runtimes.Config{Path: "/usr/bin", CacheFile: cacheFile}
	files := func() []string {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(filepath.Dir(cacheFile), "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for n := range 34 {
		_, prepare := resolve(t, cfg).Compiled("/usr/bin/python3", runtimes.NewSource("a.py", fmt.Append(nil, n)))
		if prepare == nil {
			t.Fatal("got no function that compiles, want one")
		}
		prepare(t.Context())
	}
	if got := files(); len(got) != 32 {
		t.Errorf("got %d files after 34 texts, want 32", len(got))
	}
	last := runtimes.NewSource("a.py", []byte("33"))
	if code, _ := resolve(t, cfg).Compiled("/usr/bin/python3", last); code == nil {
		t.Error("the last text: got no code, want its file")
	}
	for _, name := range files() {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v, want mode 0600", info, err)
		}
		if err := os.Chmod(name, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if code, _ := resolve(t, cfg).Compiled("/usr/bin/python3", last); code != nil {
		t.Error("a file that others can write to: got its code, want none")
	}
}

// TestCompiledFileIsDamaged: a file that a crash of the machine has left in part is not used, and is replaced.
func TestCompiledFileIsDamaged(t *testing.T) {
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip("no /usr/bin/python3 here")
	}
	cacheFile := filepath.Join(t.TempDir(), "runtimes.json")
	cfg := runtimes.Config{Path: "/usr/bin", CacheFile: cacheFile}
	src := runtimes.NewSource("a.py", []byte("print(1)"))
	_, prepare := resolve(t, cfg).Compiled("/usr/bin/python3", src)
	prepare(t.Context())
	all, err := filepath.Glob(filepath.Join(filepath.Dir(cacheFile), "*", "*"))
	if err != nil || len(all) != 1 {
		t.Fatalf("got files %q, %v, want one", all, err)
	}
	whole, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	for kind, text := range map[string][]byte{"Cut": whole[:len(whole)-1], "Zeros": make([]byte, len(whole)), "Short": whole[:3], "Empty": nil} {
		t.Run(kind, func(t *testing.T) {
			if err := os.WriteFile(all[0], text, 0o600); err != nil {
				t.Fatal(err)
			}
			code, prepare := resolve(t, cfg).Compiled("/usr/bin/python3", src)
			if code != nil || prepare == nil {
				t.Fatalf("got %d bytes of code, want none and a function that compiles", len(code))
			}
			prepare(t.Context())
			if code, _ = resolve(t, cfg).Compiled("/usr/bin/python3", src); code == nil {
				t.Error("got no code after the file was replaced, want it")
			}
		})
	}
}

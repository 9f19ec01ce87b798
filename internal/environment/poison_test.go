package environment_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifyFindsPoison: Verify finds the changes that an attacker who could write to a set
// for a moment would make to stay unseen.
func TestVerifyFindsPoison(t *testing.T) {
	b := newBench(t)
	s := b.install(t).Set
	site := filepath.Join(s.Dir, "site-packages")
	file := filepath.Join(site, "core_of_apple.py")
	keep := func(name string) (undo func()) {
		was, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(name, 0o600)
		return func() {
			_ = os.WriteFile(name, was, 0o600)
			_ = os.Chmod(name, info.Mode().Perm())
			_ = os.Chtimes(name, info.ModTime(), info.ModTime())
		}
	}
	compiled, err := filepath.Glob(filepath.Join(site, "__pycache__", "core_of_apple.*.pyc"))
	if err != nil || len(compiled) == 0 {
		t.Fatalf("compiled files: got none (%v), want some", err)
	}
	// alike writes other bytes of the same length and time.
	alike := func(name string) error {
		was, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, bytes.Repeat([]byte("#"), len(was)), 0o600); err != nil {
			return err
		}
		return os.Chtimes(name, info.ModTime(), info.ModTime())
	}
	add := func(name string) func() error {
		return func() error { return os.WriteFile(filepath.Join(site, name), []byte("import evil\n"), 0o600) }
	}
	for what, c := range map[string]struct {
		want string
		do   func() error
	}{
		"same size and time":      {"core_of_apple.py was changed", func() error { return alike(file) }},
		"its compiled form":       {".pyc was changed", func() error { return alike(compiled[0]) }},
		"a .pth":                  {"a.pth was added", add("a.pth")},
		"sitecustomize":           {"sitecustomize.py was added", add("sitecustomize.py")},
		"another compiled form":   {"evil.cpython-399.pyc was added", add("__pycache__/evil.cpython-399.pyc")},
		"a module of C beside it": {"core_of_apple.so was added", add("core_of_apple.so")},
		"a directory of its name": {"core_of_apple/__init__.py was added", func() error {
			return errorsOf(os.Mkdir(filepath.Join(site, "core_of_apple"), 0o755), add("core_of_apple/__init__.py")())
		}},
		"a link":                    {"no regular file", func() error { return os.Symlink(file, filepath.Join(site, "linked.py")) }},
		"a link to a directory":     {"no regular file", func() error { return os.Symlink("/tmp", filepath.Join(site, "linked.py")) }},
		"a file that others write":  {"can be written by others", func() error { return os.Chmod(file, 0o666) }},
		"a group that writes":       {"can be written by others", func() error { return os.Chmod(compiled[0], 0o464) }},
		"a directory of others":     {"can be written by others", func() error { return os.Chmod(filepath.Join(site, "__pycache__"), 0o777) }},
		"the cache, open to others": {"can be written by others", func() error { return os.Chmod(filepath.Join(s.Dir, "cache"), 0o777) }},
	} {
		pycache, cache := filepath.Join(site, "__pycache__"), filepath.Join(s.Dir, "cache")
		for _, dir := range []string{site, pycache} {
			_ = os.Chmod(dir, 0o700)
		}
		undo := []func(){keep(file), keep(compiled[0])}
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if err := b.library.Verify(t.Context(), s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
		for _, name := range []string{"a.pth", "sitecustomize.py", "__pycache__/evil.cpython-399.pyc", "core_of_apple.so", "core_of_apple", "linked.py"} {
			_ = os.RemoveAll(filepath.Join(site, name))
		}
		for _, f := range undo {
			f()
		}
		for _, dir := range []string{site, pycache, cache} {
			_ = os.Chmod(dir, 0o555)
		}
		if err := b.library.Verify(t.Context(), s); err != nil {
			t.Fatalf("%s, undone: got %v, want a sound set", what, err)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Lchown(file, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if err := b.library.Verify(t.Context(), s); err == nil || !strings.Contains(err.Error(), "can be written by others") {
		t.Errorf("a file of another user: got %v, want it named as writable by others", err)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

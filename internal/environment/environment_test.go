package environment_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

func TestInstall(t *testing.T) {
	b := newBench(t)
	if got := b.library.Active(b.order.Python); got != nil {
		t.Fatalf("before: %v", got)
	}
	r := b.install(t)
	if r.Already || r.Pip == "" || r.Fetched == 0 {
		t.Errorf("got report %+v, want a new set, pip's version and fetched wheels", r)
	}
	for what, l := range map[string]*environment.Library{"the same": b.library, "another process": b.again()} {
		sets := l.Active(b.order.Python)
		if len(sets) != 1 {
			t.Fatalf("%s: got %d sets, want 1", what, len(sets))
		}
		s := sets[0]
		if d := cmp.Diff([]string{"apple==1.0"}, s.Packages()); d != "" {
			t.Errorf("%s (-want +got): %s", what, d)
		}
		if err := l.Verify(t.Context(), s); err != nil {
			t.Errorf("%s: Verify: got %v, want nil", what, err)
		}
		if got := l.Active(environment.Python{Path: "/usr/bin/python2.7", Version: "2.7.18"}); got != nil {
			t.Errorf("%s: another interpreter sees %v", what, got)
		}
	}
	s := r.Set
	out, err := exec.CommandContext(t.Context(), b.order.Python.Path, "-S", "-c", "import sys; sys.path.append(sys.argv[1]); import apple; print(apple.taste, apple.core_of_apple.seeds, apple.__cached__)", filepath.Join(s.Dir, "site-packages")).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "sweet 5 "+s.Dir) {
		t.Errorf("import in a program: got %s, %v; want the package of the set", out, err)
	}
	compiled := strings.Fields(string(out))[2]
	if code, err := os.ReadFile(compiled); err != nil || len(code) < 16 || code[4] != 1 {
		t.Errorf("%s: got %v, want compiled code that Python loads without a check of its source", compiled, err)
	} else if bytes.Contains(code, []byte(".new-")) {
		t.Errorf("%s: got the name of the temporary directory, want none", compiled)
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != filepath.Base(s.Dir) {
		t.Error("got a directory of another name, want the hash of its manifest")
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "site-packages", "bin")); err == nil {
		t.Error("got a bin directory, want no programs installed")
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, ".new-*")); left != nil {
		t.Errorf("left behind: got %v, want nothing", left)
	}
	err = filepath.WalkDir(s.Dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(p)
		if err == nil && (info.Mode()&0o222 != 0 || info.Mode()&0o444 != 0o444) {
			t.Errorf("%s: got mode %v, want it readable for all and writable for none", p, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The second installation fetches nothing, even when there is something newer;
// only an upgrade does.
func TestInstallAgain(t *testing.T) {
	b := newBench(t)
	first := b.install(t)
	wheel(t, b.index, "apple", "1.1", nil, map[string]string{"apple/__init__.py": "taste = 'sour'\n"})
	second := b.install(t)
	if !second.Already || second.Pip != "" || second.Set.Digest != first.Set.Digest || !bytes.Equal(second.Lock, first.Lock) {
		t.Errorf("the second time: got %+v, want the same set, already there", second)
	}
	b.order.Upgrade = true
	third := b.install(t)
	if d := cmp.Diff([]string{"apple==1.1"}, third.Set.Packages()); d != "" || third.Already {
		t.Errorf("upgrade (-want +got): %s, already %v, want a new set", d, third.Already)
	}
	if got := b.again().Active(b.order.Python); len(got) != 1 || got[0].Digest != third.Set.Digest {
		t.Errorf("active: %+v", got)
	}
	if _, err := os.Stat(first.Set.Dir); err != nil {
		t.Errorf("the replaced set, which a running program may have open: got %v, want it kept for now", err)
	}
	b.order.Upgrade = false
	b.install(t)
	if _, err := os.Stat(first.Set.Dir); err == nil {
		t.Error("the replaced set after the next setup: got it still there, want it removed")
	}
}

// A lock of another machine installs the same, or nothing.
func TestLock(t *testing.T) {
	a, b := newBench(t), newBench(t)
	lock := a.install(t).Lock
	wheel(t, b.index, "apple", "1.1", nil, map[string]string{"apple/__init__.py": ""})
	for _, f := range []string{"apple-1.0", "core_of_apple-2.0"} { // bytes of their own: a zip made by hand may differ
		data, err := os.ReadFile(filepath.Join(a.index, f+"-py3-none-any.whl"))
		if err == nil {
			err = os.WriteFile(filepath.Join(b.index, f+"-py3-none-any.whl"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.order.Lock = lock
	if r := b.install(t); !cmp.Equal(r.Set.Packages(), []string{"apple==1.0"}) || !bytes.Equal(r.Lock, lock) {
		t.Errorf("got %v and the lock %s", r.Set.Packages(), r.Lock)
	}
	c := newBench(t)
	c.order.Lock = lock
	wheel(t, c.index, "apple", "1.0", nil, map[string]string{"apple/__init__.py": "taste = 'poison'\n"})
	_, err := c.library.Install(t.Context(), c.order)
	if e := sandboxmcp.AsError(err); e.Code != sandboxmcp.CodeInstallFailed || !strings.Contains(e.Message, "lock") {
		t.Errorf("another wheel of the same name: got %v, want install_failed with the lock named", err)
	}
	if got := c.again().Active(c.order.Python); got != nil {
		t.Errorf("it is active: %v", got)
	}
	for what, text := range map[string]string{
		"empty": "# nothing\n", "an option": "--index-url elsewhere\n", "no hash": "apple==1.0\n", "an address": "apple @ file:///tmp/a.whl\n",
		"another python": "# sandboxmcp setup fruit, for cp27 on here\n" + string(lock),
		"twice":          string(lock) + string(lock), "a short hash": "apple==1.0 --hash=sha256:abc\n", "an editable": "-e .\n",
	} {
		c.order.Lock = []byte(text)
		if _, err := c.library.Install(t.Context(), c.order); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s: got %v, want invalid_argument", what, err)
		}
	}
}

// A package without a wheel is not installed, and none of its code runs.
func TestOnlyWheels(t *testing.T) {
	b := newBench(t)
	ran := filepath.Join(t.TempDir(), "ran")
	src := filepath.Join(t.TempDir(), "pear-1.0")
	if err := os.Mkdir(src, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "setup.py"), []byte("open("+`"`+ran+`"`+", 'w')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-czf", filepath.Join(b.index, "pear-1.0.tar.gz"), "-C", filepath.Dir(src), "pear-1.0").CombinedOutput(); err != nil {
		t.Fatalf("tar: got %s, %v; want no error", out, err)
	}
	b.order.Recipe.Packages = []string{"pear"}
	b.order.Env = append(b.order.Env, "PIP_NO_BINARY=:all:")
	_, err := b.library.Install(t.Context(), b.order)
	if e := sandboxmcp.AsError(err); e.Code != sandboxmcp.CodeInstallFailed || e.Hint == "" {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("got setup.py run, want no code of a package run")
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, ".new-*")); left != nil {
		t.Errorf("left behind: got %v, want nothing", left)
	}
}

// TestNothingIsBuilt: a package whose URL the metadata of another one names may be a source, and pip would build it.
func TestNothingIsBuilt(t *testing.T) {
	b := newBench(t)
	top := t.TempDir()
	src, ran := filepath.Join(top, "pear-1.0"), filepath.Join(top, "ran")
	if err := os.Mkdir(src, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"build\"\nbackend-path = [\".\"]\n",
		"build.py":       "open(" + strconv.Quote(ran) + ", 'w')\n",
	} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-czf", src+".tar.gz", "-C", top, "pear-1.0").CombinedOutput(); err != nil {
		t.Fatalf("tar: got %s, %v; want no error", out, err)
	}
	for i, from := range []string{"file://" + src + ".tar.gz", "file://" + src, "git+file://" + src} {
		name := "plum" + strconv.Itoa(i)
		wheel(t, b.index, name, "1.0", []string{"pear @ " + from}, map[string]string{name + ".py": ""})
		b.order.Recipe.Packages = []string{name}
		if _, err := b.library.Install(t.Context(), b.order); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInstallFailed {
			t.Errorf("%s: got %v, want %s", from, err, sandboxmcp.CodeInstallFailed)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the build of a package was run, want no code of a package run")
	}
}

// TestStartupFilesAreNotInASet: what Python would execute in every program is left out.
func TestStartupFilesAreNotInASet(t *testing.T) {
	b := newBench(t)
	wheel(t, b.index, "pear", "1.0", nil, map[string]string{
		"pear.py": "", "pear.pth": "import os\n", "sitecustomize.py": "", "usercustomize/__init__.py": "", "pear-1.0.data/data/apport_python_hook.py": "", "json.py": "",
	})
	b.order.Recipe.Packages = []string{"pear"}
	site := filepath.Join(b.install(t).Set.Dir, "site-packages")
	var got []string
	all, err := os.ReadDir(site)
	for _, e := range all {
		got = append(got, e.Name())
	}
	if want := []string{"__pycache__", "pear-1.0.dist-info", "pear.py"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q %v, want %q", got, err, want)
	}
}

func TestVerifyNamesWhatChanged(t *testing.T) {
	b := newBench(t)
	s := b.install(t).Set
	site := filepath.Join(s.Dir, "site-packages")
	file := filepath.Join(site, "core_of_apple.py")
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, want string
		do         func() error
	}{
		{"changed", "core_of_apple.py was changed", func() error { return os.WriteFile(file, []byte("seeds = 6\n"), 0o600) }},
		{"gone", "core_of_apple.py is gone", func() error { return os.Remove(file) }},
		{"added", "extra.py was added", func() error {
			return os.WriteFile(filepath.Join(site, "extra.py"), nil, 0o600)
		}},
		{"a link", "no regular file", func() error { return os.Symlink("/etc/passwd", filepath.Join(site, "aa.py")) }},
	} {
		if err := os.Chmod(site, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(file, 0o600)
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(site, 0o555); err != nil {
			t.Fatal(err)
		}
		if err := b.library.Verify(t.Context(), s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.what, err, c.want)
		}
		_ = os.Chmod(site, 0o700)
		_ = os.Remove(filepath.Join(site, "extra.py"))
		if err := os.WriteFile(file, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := b.install(t)
	if r.Already {
		t.Error("a set that is not whole: got it left as it is, want it made again")
	}
	if err := b.library.Verify(t.Context(), r.Set); err != nil {
		t.Errorf("the set that was made again: got %v, want it whole", err)
	}
}

// What others could have written is not used, and that is said.
func TestCheapLook(t *testing.T) {
	whole := newBench(t)
	digest := whole.install(t).Set.Digest
	for what, spoil := range map[string]func(dir, set string) error{
		"the table can be written":    func(dir, _ string) error { return os.Chmod(filepath.Join(dir, "python.json"), 0o666) },
		"the sets can be written":     func(dir, _ string) error { return os.Chmod(dir, 0o777) },
		"the set can be written":      func(_, set string) error { return os.Chmod(set, 0o777) },
		"the packages can be written": func(_, set string) error { return os.Chmod(filepath.Join(set, "site-packages"), 0o757) },
		"another manifest": func(_, set string) error {
			name := filepath.Join(set, "manifest.json")
			_ = os.Chmod(name, 0o600)
			return os.WriteFile(name, []byte("{}"), 0o400)
		},
		"it is gone": func(_, set string) error { return os.Rename(set, set+"x") },
		"a link": func(_, set string) error {
			_ = os.Rename(set, set+"x")
			return os.Symlink(set+"x", set)
		},
		"no digest": func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "python.json"), []byte(`{"version":1,"active":{"cp311":{"fruit":"../../x"}}}`), 0o600)
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := &bench{dir: filepath.Join(t.TempDir(), "environments"), order: whole.order}
			if out, err := exec.CommandContext(t.Context(), "cp", "-a", whole.dir, b.dir).CombinedOutput(); err != nil {
				t.Fatalf("cp: got %s, %v; want no error", out, err)
			}
			t.Cleanup(b.open)
			set := filepath.Join(b.dir, digest)
			seen := b.again()
			if got := seen.Active(b.order.Python); len(got) != 1 {
				t.Fatalf("before: %d sets", len(got))
			}
			if err := spoil(b.dir, set); err != nil {
				t.Fatal(err)
			}
			l := b.again()
			if strings.HasPrefix(what, "it is gone") { // a library that has seen it
				l = seen
			}
			if got := l.Active(b.order.Python); len(got) != 0 {
				t.Errorf("it is used: %+v", got)
			}
			if _, err := b.again().All(); err == nil {
				t.Error("All with a broken set: got no error, want one")
			}
		})
	}
}

func TestRemove(t *testing.T) {
	b := newBench(t)
	if _, err := b.library.Remove(t.Context(), "fruit"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeNotFound {
		t.Errorf("Remove before there is a set: got %v, want not_found", err)
	}
	s := b.install(t).Set
	if _, err := b.library.Remove(t.Context(), "vegetables"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeNotFound {
		t.Errorf("Remove of another name: got %v, want not_found", err)
	}
	gone, err := b.library.Remove(t.Context(), "fruit")
	if err != nil || len(gone) != 1 || gone[0].Digest != s.Digest {
		t.Fatalf("got %v, %v", gone, err)
	}
	if got := b.again().Active(b.order.Python); got != nil {
		t.Errorf("still active: %v", got)
	}
	if _, err := os.Stat(s.Dir); err == nil {
		t.Error("the removed set: got it still there, want it gone")
	}
	if locks, _ := filepath.Glob(filepath.Join(b.dir, "*-*.lock")); locks != nil {
		t.Errorf("lock files: got %v, want none", locks)
	}
}

func TestKeep(t *testing.T) {
	b := newBench(t)
	s := b.install(t).Set
	if err := b.library.Keep(s, "fontlist-v3.11.0.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.py", "../fontlist-v1.json", "fontlist-v1/.json", ""} {
		if err := b.library.Keep(s, name, nil); err == nil {
			t.Errorf("Keep of %q: got no error, want a refusal", name)
		}
	}
	if err := b.library.Keep(s, "fontlist-v1.json", make([]byte, 5<<20)); err == nil {
		t.Error("Keep of 5 MiB: got no error, want a refusal")
	}
	if err := b.library.Verify(t.Context(), s); err != nil {
		t.Error(err)
	}
}

func TestNoPip(t *testing.T) {
	b := newBench(t)
	bin := t.TempDir()
	python := filepath.Join(bin, "python3")
	// An interpreter that has no pip of its own.
	script := "#!/bin/sh\nfor a; do [ \"$a\" = pip ] && { echo 'No module named pip' >&2; exit 1; }; done\nexec " + b.order.Python.Path + " \"$@\"\n"
	if err := os.WriteFile(python, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	env := b.order.Env
	b.order.Python.Path, b.order.Env = python, []string{"PATH=" + bin, "HOME=" + bin}
	_, err := b.library.Install(t.Context(), b.order)
	if e := sandboxmcp.AsError(err); e.Code != sandboxmcp.CodeInstallFailed || !strings.Contains(e.Message, "no pip") || !strings.Contains(e.Hint, "ensurepip") {
		t.Errorf("got %v, hint %q", err, sandboxmcp.AsError(err).Hint)
	}
	// One that lies elsewhere installs for it.
	b.order.Env = env
	if r := b.install(t); len(r.Set.Wheels) != 2 {
		t.Errorf("got %+v", r)
	}
}

func TestCancelled(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.order.Say = func(string) { cancel() }
	if _, err := b.library.Install(ctx, b.order); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, ".new-*")); left != nil {
		t.Errorf("left behind: got %v, want nothing", left)
	}
}

func TestTag(t *testing.T) {
	for _, c := range []struct{ path, version, want string }{
		{"/usr/bin/python3.11", "3.11", "cp311"},
		{"/opt/x/bin/python3.13", "3.13.0", "cp313"},
		{"/opt/x/bin/python3.13t", "3.13.0", "cp313t"},
		{"/opt/x/bin/pypy3.10", "3.10.14", "pp310"},
	} {
		if got := (environment.Python{Path: c.path, Version: c.version}).Tag(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.path, got, c.want)
		}
	}
}

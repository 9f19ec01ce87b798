package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/runtimes"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// put writes an executable file and returns its directory.
func put(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(path)
}

// binary writes a file that looks like a binary, without being one.
func binary(t *testing.T, path string) string { return put(t, path, "\x7fELF not really") }

// shim writes a script that answers a probe as a version manager would, and
// counts its runs in the file count.
func shim(t *testing.T, path, executable, version, prefix, count string) string {
	t.Helper()
	return put(t, path, fmt.Sprintf(`#!/bin/sh
echo run >> '%s'
echo noise
printf '\036sandboxmcp {"executable":"%s","version":"%s","prefixes":["%s","%s"]}\n'
`, count, executable, version, prefix, prefix))
}

func runs(t *testing.T, count string) int {
	t.Helper()
	data, err := os.ReadFile(count)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(data), "run")
}

func resolve(t *testing.T, cfg runtimes.Config) *runtimes.Set {
	t.Helper()
	cfg.HomeEnv = append(cfg.HomeEnv, "PATH=/usr/bin:/bin")
	return runtimes.New(cfg)
}

func TestShimIsFollowedOnce(t *testing.T) {
	root := t.TempDir()
	count := filepath.Join(root, "count")
	real := filepath.Join(root, "versions/3.12.1/bin/python3.12")
	binary(t, real)
	prefix := filepath.Join(root, "versions/3.12.1")
	shims := shim(t, filepath.Join(root, "shims/python3"), real, "3.12.1", prefix, count)
	cacheFile := filepath.Join(root, "runtimes.json")
	now := time.Now()
	cfg := runtimes.Config{Path: shims, CacheFile: cacheFile, Now: func() time.Time { return now }}
	s := resolve(t, cfg)
	if got := runs(t, count); got != 0 {
		t.Fatalf("Resolve started %d processes", got)
	}
	for range 3 {
		got, err := s.Find(t.Context(), sandboxmcp.Python)
		if err != nil {
			t.Fatal(err)
		}
		got.TrustedForPreload = false
		want := runtimes.Interpreter{Language: sandboxmcp.Python, Path: real, Version: "3.12.1", ReadOnlyDirs: []string{prefix}}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
	if got := runs(t, count); got != 1 {
		t.Errorf("the shim ran %d times, want 1", got)
	}
	check := func(what string, want int) {
		t.Helper()
		if _, err := resolve(t, cfg).Find(t.Context(), sandboxmcp.Python); err != nil {
			t.Fatalf("%s: got %v, want an interpreter", what, err)
		}
		if got := runs(t, count); got != want {
			t.Errorf("%s: the shim ran %d times in all, want %d", what, got, want)
		}
	}
	info, err := os.Stat(cacheFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("cache file: %v, %v; want mode 0600", info, err)
	}
	check("another process", 1)
	put(t, real, "\x7fELF another")
	check("the binary changed", 2)
	now = now.Add(25 * time.Hour)
	check("a day later", 3)
	if err := os.Chmod(cacheFile, 0o666); err != nil {
		t.Fatal(err)
	}
	check("a cache that others can write", 4)
	if err := os.Remove(cacheFile); err != nil {
		t.Fatal(err)
	}
	check("no cache file", 5)
	if err := os.WriteFile(cacheFile, []byte(`{"version":99,"entries":null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	check("a cache of another version", 6)
	temps, _ := filepath.Glob(cacheFile + ".*")
	if len(temps) > 0 {
		t.Errorf("left behind: got %v, want nothing", temps)
	}
}

// TestFindRemembers: within Remember, Find does not look at the files. Afterwards it sees that
// they have changed.
func TestFindRemembers(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "bin")
	count := filepath.Join(t.TempDir(), "count")
	first, second := binary(t, filepath.Join(bin, "one/python3.12")), binary(t, filepath.Join(bin, "two/python3.12"))
	path := shim(t, filepath.Join(bin, "python3"), filepath.Join(first, "python3.12"), "3.12.1", first, count)
	now := time.Now()
	s := resolve(t, runtimes.Config{Path: path, Remember: time.Second, Now: func() time.Time { return now }})
	find := func() string {
		t.Helper()
		in, err := s.Find(t.Context(), sandboxmcp.Python)
		if err != nil {
			t.Fatalf("got %v, want an interpreter", err)
		}
		in.ReadOnlyDirs[0] = "changed by the caller"
		return filepath.Dir(in.Path)
	}
	if got := find(); got != first {
		t.Fatalf("got %s, want %s", got, first)
	}
	shim(t, filepath.Join(bin, "python3"), filepath.Join(second, "python3.12"), "3.12.1", second, count)
	now = now.Add(time.Second - 1)
	if got := find(); got != first {
		t.Errorf("within Remember: got %s, want %s", got, first)
	}
	now = now.Add(1)
	if got := find(); got != second {
		t.Errorf("after Remember: got %s, want %s", got, second)
	}
	if err := os.RemoveAll(filepath.Join(bin, "python3")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	for range 2 {
		if in, err := s.Find(t.Context(), sandboxmcp.Python); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRuntimeUnavailable {
			t.Errorf("with no interpreter: got %v and %v, want runtime_unavailable", in, err)
		}
	}
}

func TestPassesOver(t *testing.T) {
	root := t.TempDir()
	count := filepath.Join(root, "count")
	real := filepath.Join(root, "py/bin/python3.9")
	binary(t, real)
	broken := put(t, filepath.Join(root, "broken/python3"), "#!/bin/sh\necho run >> "+count+"\nexit 127\n")
	old := shim(t, filepath.Join(root, "old/python3"), real, "3.7.17", filepath.Join(root, "py"), count)
	good := shim(t, filepath.Join(root, "good/python"), real, "3.9.18", filepath.Join(root, "py"), count)
	path := strings.Join([]string{"relative", ".", "", "/nonexistent/dir", broken, old, good}, ":")
	s := resolve(t, runtimes.Config{Path: path})
	for range 2 {
		in, err := s.Find(t.Context(), sandboxmcp.Python)
		if err != nil {
			t.Fatal(err)
		}
		if in.Version != "3.9.18" {
			t.Errorf("version = %s, want 3.9.18", in.Version)
		}
	}
	if got := runs(t, count); got != 3 {
		t.Errorf("%d processes, want 3: failures are remembered too", got)
	}
	_, err := resolve(t, runtimes.Config{Path: broken + ":" + old}).Find(t.Context(), sandboxmcp.Python)
	e := sandboxmcp.AsError(err)
	if e.Code != sandboxmcp.CodeRuntimeUnavailable || !strings.Contains(e.Message, "3.7.17") || !strings.Contains(e.Message, "cannot be started") {
		t.Errorf("got %v, want runtime_unavailable with the version and the reason", err)
	}
}

func TestMissing(t *testing.T) {
	s := resolve(t, runtimes.Config{Path: t.TempDir()})
	for lang, want := range map[sandboxmcp.Language]string{"python": "apt-get install python3", "node": "apt-get install nodejs", "shell": "apt-get install bash"} {
		_, err := s.Find(t.Context(), lang)
		e := sandboxmcp.AsError(err)
		if e.Code != sandboxmcp.CodeRuntimeUnavailable || e.Hint != want {
			t.Errorf("%s: got %v with hint %q, want runtime_unavailable with %q", lang, err, e.Hint, want)
		}
	}
	for _, r := range s.List(t.Context()) {
		if r.Available || r.Hint == "" || r.PackagesPreloaded == nil {
			t.Errorf("got row %+v, want it unavailable, with a hint", r)
		}
	}
	if _, err := s.Find(t.Context(), "cobol"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeUnsupportedLanguage {
		t.Errorf("cobol: got %v, want unsupported_language", err)
	}
}

// An interpreter's prefix that holds other things, such as a home directory, must not be shown
// whole.
func TestHomeIsNotShown(t *testing.T) {
	home := t.TempDir()
	count := filepath.Join(home, "count")
	for _, prefix := range []string{home, filepath.Join(home, ".local")} {
		real := filepath.Join(prefix, "bin/node")
		binary(t, real)
		put(t, filepath.Join(prefix, "lib/x"), "")
		put(t, filepath.Join(prefix, "share/keyrings/login"), "secret")
		shims := shim(t, filepath.Join(home, "s", "shims", "node"), real, "20.1.0", "", count)
		in, err := resolve(t, runtimes.Config{Path: shims, HomeEnv: []string{"HOME=" + home}}).Find(t.Context(), sandboxmcp.Node)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{filepath.Join(prefix, "bin"), filepath.Join(prefix, "lib")}
		if d := cmp.Diff(want, in.ReadOnlyDirs); d != "" {
			t.Errorf("prefix %s: directories (-want +got): %s", prefix, d)
		}
	}
	// A directory of its own is shown whole.
	real := filepath.Join(home, "nvm/versions/v20/bin/node")
	binary(t, real)
	shims := shim(t, filepath.Join(home, "s", "shims", "node"), real, "20.1.0", "", count)
	in, err := resolve(t, runtimes.Config{Path: shims, HomeEnv: []string{"HOME=" + home}}).Find(t.Context(), sandboxmcp.Node)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{filepath.Join(home, "nvm/versions/v20")}, in.ReadOnlyDirs); d != "" {
		t.Error(d)
	}
}

// An interpreter that lies directly in the home directory would need all of it
// shown: the next one on the PATH is taken.
func TestInterpreterInHomeIsPassedOver(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	count := filepath.Join(home, "count")
	for name, c := range map[string]struct {
		lang   sandboxmcp.Language
		first  string // PATH entry of the one in the home directory
		second string
	}{
		"Shell":  {sandboxmcp.Shell, binary(t, filepath.Join(home, "bash")), binary(t, filepath.Join(other, "sh", "bash"))},
		"Node":   {sandboxmcp.Node, shim(t, filepath.Join(home, "s", "node"), filepath.Join(home, "node"), "20.1.0", "", count), shim(t, filepath.Join(other, "s", "node"), filepath.Join(other, "n", "node"), "20.2.0", "", count)},
		"Python": {sandboxmcp.Python, shim(t, filepath.Join(home, "s", "python3"), filepath.Join(home, "python3.12"), "3.12.1", home, count), shim(t, filepath.Join(other, "s", "python3"), filepath.Join(other, "p", "python3.12"), "3.12.2", filepath.Join(other, "p"), count)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, real := range []string{filepath.Join(home, "node"), filepath.Join(home, "python3.12"), filepath.Join(other, "n", "node"), filepath.Join(other, "p", "python3.12")} {
				binary(t, real)
			}
			env := []string{"HOME=" + home}
			in, err := resolve(t, runtimes.Config{Path: c.first + ":" + c.second, HomeEnv: env}).Find(t.Context(), c.lang)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(in.Path, other+"/") {
				t.Errorf("got %s, want the one below %s", in.Path, other)
			}
			for _, d := range in.ReadOnlyDirs {
				if !strings.HasPrefix(d, other+"/") {
					t.Errorf("got %s shown, want directories of the interpreter alone", d)
				}
			}
			_, err = resolve(t, runtimes.Config{Path: c.first, HomeEnv: env}).Find(t.Context(), c.lang)
			if e := sandboxmcp.AsError(err); e.Code != sandboxmcp.CodeRuntimeUnavailable || !strings.Contains(e.Message, home) {
				t.Errorf("with that one alone: %v, want that it would show %s", err, home)
			}
		})
	}
}

// A virtual environment may be made in a project's own directory. What else
// lies there is not shown.
func TestVirtualEnvironmentInAProject(t *testing.T) {
	const system = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), system, "-c", "import venv").Run(); err != nil {
		testkit.Need(t, "python", false, "no python that can make a virtual environment")
	}
	project := filepath.Join(t.TempDir(), "project")
	put(t, filepath.Join(project, ".env"), "SECRET=1")
	put(t, filepath.Join(project, "src", "main.py"), "")
	put(t, filepath.Join(project, ".git", "config"), "")
	if out, err := exec.CommandContext(t.Context(), system, "-m", "venv", "--without-pip", project).CombinedOutput(); err != nil {
		t.Fatalf("make a virtual environment: got %v: %s, want no error", err, out)
	}
	in, err := resolve(t, runtimes.Config{Path: filepath.Join(project, "bin") + ":/usr/bin"}).Find(t.Context(), sandboxmcp.Python)
	if err != nil {
		t.Fatal(err)
	}
	if !in.Virtual || filepath.Dir(in.Path) != filepath.Join(project, "bin") {
		t.Errorf("got %+v, want the one of the project", in)
	}
	shown := map[string]bool{}
	for _, d := range in.ReadOnlyDirs {
		name, ok := strings.CutPrefix(d, project+"/")
		if !ok || !slices.Contains([]string{"bin", "lib", "lib64", "include", "share", "pyvenv.cfg"}, name) {
			t.Errorf("got %s shown, want only what belongs to a virtual environment", d)
		}
		shown[name] = true
	}
	for _, name := range []string{"bin", "lib", "pyvenv.cfg"} {
		if !shown[name] {
			t.Errorf("want %s shown, got %q", name, in.ReadOnlyDirs)
		}
	}
}

func TestTrusted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root makes files that root alone can write")
	}
	root := t.TempDir() // below a directory that others can write
	count := filepath.Join(root, "count")
	real := filepath.Join(root, "n/bin/node")
	binary(t, real)
	shims := shim(t, filepath.Join(root, "shims/node"), real, "20.1.0", "", count)
	in, err := resolve(t, runtimes.Config{Path: shims}).Find(t.Context(), sandboxmcp.Node)
	if err != nil || in.TrustedForPreload {
		t.Errorf("below a temporary directory: trusted = %v, %v; want false", in.TrustedForPreload, err)
	}
	in, err = resolve(t, runtimes.Config{Path: "/usr/bin:/bin"}).Find(t.Context(), sandboxmcp.Shell)
	if err != nil || !in.TrustedForPreload {
		t.Errorf("system shell: trusted = %v, %v; want true", in.TrustedForPreload, err)
	}
}

func TestShellOfMultiCallBinaryKeepsItsName(t *testing.T) {
	root := t.TempDir()
	binary(t, filepath.Join(root, "busybox"))
	sh := filepath.Join(root, "sh")
	if err := os.Symlink("busybox", sh); err != nil {
		t.Fatal(err)
	}
	in, err := resolve(t, runtimes.Config{Path: root}).Find(t.Context(), sandboxmcp.Shell)
	if err != nil || in.Path != sh {
		t.Errorf("got %+v, %v; want path %s", in, err, sh)
	}
}

func TestLazyAndConcurrent(t *testing.T) {
	root := t.TempDir()
	count, nodes := filepath.Join(root, "count"), filepath.Join(root, "nodes")
	real := filepath.Join(root, "py/bin/python3")
	binary(t, real)
	shims := shim(t, filepath.Join(root, "shims/python3"), real, "3.11.7", filepath.Join(root, "py"), count)
	shim(t, filepath.Join(root, "shims/node"), real, "20.0.0", "", nodes)
	s := resolve(t, runtimes.Config{Path: shims})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.Find(t.Context(), sandboxmcp.Python); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if p, n := runs(t, count), runs(t, nodes); p != 1 || n != 0 {
		t.Errorf("python shim ran %d times, node shim %d; want 1 and 0", p, n)
	}
}

func TestCancelEndsAHangingShim(t *testing.T) {
	root := t.TempDir()
	shims := put(t, filepath.Join(root, "shims/python3"), "#!/bin/sh\nsleep 150 &\nwait\n")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := resolve(t, runtimes.Config{Path: shims}).Find(ctx, sandboxmcp.Python)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled || time.Since(start) > time.Minute {
		t.Errorf("got %v after %v, want cancelled at once", err, time.Since(start))
	}
}

// What this machine really has.
func TestHost(t *testing.T) {
	s := runtimes.New(runtimes.Config{Path: os.Getenv("PATH"), HomeEnv: os.Environ(), CacheFile: filepath.Join(t.TempDir(), "c")})
	for _, r := range s.List(t.Context()) {
		if !r.Available {
			t.Logf("%s: not here: %s", r.Language, r.Hint)
			continue
		}
		in, err := s.Find(t.Context(), r.Language)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", in)
		if strings.Contains(in.Path, "/shims/") || !filepath.IsAbs(in.Path) || (r.Language != "shell" && strings.Count(in.Version, ".") != 2) {
			t.Errorf("got interpreter %+v, want an absolute path behind shims, and a version", in)
		}
	}
}

func BenchmarkFindWarm(b *testing.B) {
	s := runtimes.New(runtimes.Config{Path: os.Getenv("PATH"), HomeEnv: os.Environ()})
	if _, err := s.Find(b.Context(), sandboxmcp.Python); err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		if _, err := s.Find(b.Context(), sandboxmcp.Python); err != nil {
			b.Fatal(err)
		}
	}
}

// A new process with a cache file: the whole way of a command line's first look.
func BenchmarkFindFromCacheFile(b *testing.B) {
	cfg := runtimes.Config{Path: os.Getenv("PATH"), HomeEnv: os.Environ(), CacheFile: filepath.Join(b.TempDir(), "c")}
	for b.Loop() {
		if _, err := runtimes.New(cfg).Find(b.Context(), sandboxmcp.Python); err != nil {
			b.Skip(err)
		}
	}
}

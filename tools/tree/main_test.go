package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a new repository for a test.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t, t.TempDir()}
	r.git("init", "-q")
	return r
}

func (r repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: got %v and %s, want no error", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repository) write(name string, text []byte) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) commit(n int) {
	r.t.Helper()
	r.git("add", "-A")
	for range n {
		r.git("commit", "-q", "--allow-empty", "-m", "one more")
	}
}

// refused checks what a command says of the repository; want is empty where it accepts it.
func (r repository) refused(command, want string) {
	r.t.Helper()
	err := run(r.t.Context(), []string{command, r.dir})
	switch {
	case want == "" && err != nil:
		r.t.Errorf("%s: got %v, want no error", command, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		r.t.Errorf("%s: got %v, want %q in it", command, err, want)
	}
}

func TestALargeBlobIsRefused(t *testing.T) {
	r := newRepository(t)
	r.write("just", make([]byte, maxBlob))
	r.commit(1)
	r.refused("blobs", "")
	r.write("a/too large", make([]byte, maxBlob+1))
	r.refused("blobs", "") // it is in no commit yet
	r.commit(1)
	r.refused("blobs", "a/too large has 1048577 bytes, want at most 1048576")
}

func TestAnOldBenchmarkIsRefused(t *testing.T) {
	r := newRepository(t)
	r.refused("benchmarks", "no such file")
	r.write(benchmarks, []byte("# Benchmarks\n\nMeasured on 1 May 2026, 10:00 UTC by `bin/bench`.\n"))
	r.commit(1)
	r.refused("benchmarks", "does not say at which commit")
	r.write(benchmarks, []byte("# Benchmarks\n\nMeasured on 1 May 2026, 10:00 UTC at commit 0123456789ab by `bin/bench`.\n"))
	r.refused("benchmarks", "was measured at 0123456789ab: git rev-list")
	head := r.git("rev-parse", "--short=12", "HEAD")
	r.write(benchmarks, []byte("# Benchmarks\n\nMeasured on 1 May 2026, 10:00 UTC at commit "+head+" by `bin/bench`.\n"))
	r.commit(maxAge)
	r.refused("benchmarks", "")
	r.commit(1)
	r.refused("benchmarks", "201 commits ago, want at most 200")
}

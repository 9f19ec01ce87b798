package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestContainersAreRecognized: by the marks of Docker and Podman.
func TestContainersAreRecognized(t *testing.T) {
	for _, c := range []struct {
		mark string
		want bool
	}{{"etc/passwd", false}, {".dockerenv", true}, {"run/.containerenv", true}} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, c.mark)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, c.mark), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := inContainer(root); got != c.want {
			t.Errorf("%s: got %v, want %v", c.mark, got, c.want)
		}
	}
}

// TestFixesOfContainers: options of the container lift the default restrictions of engines.
func TestFixesOfContainers(t *testing.T) {
	for failure, option := range map[string]string{
		"jail unavailable: start builder: operation not permitted":               "seccomp=unconfined",
		"jail unavailable: build template: mount /proc: operation not permitted": "systempaths=unconfined",
	} {
		if got := fixFor(failure); !blocksSandboxes(failure) || !strings.Contains(got, option) {
			t.Errorf("%s: got %q, want the option %s", failure, got, option)
		}
	}
}

// TestFixesThatNeedNoDoctor: for some failures, the error of a run has the fix as its hint.
func TestFixesThatNeedNoDoctor(t *testing.T) {
	t.Parallel()
	for failure, want := range map[string]string{
		"lease user ids: mkdir /run/sandboxmcp: read-only file system":                                                                    "--tmpfs /run",
		"jail unavailable: build template: keep /: bad file descriptor: a process may have 64 open files (RLIMIT_NOFILE), fewer than 256": "ulimit -n",
	} {
		e := sandboxmcp.AsError(unavailable(errors.New(failure)))
		if got := fixFor(failure); !strings.Contains(got, want) || e.Hint != got {
			t.Errorf("%s: got %q and the hint %q, want %s in both", failure, got, e.Hint, want)
		}
	}
}

package environment_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// wheel puts a wheel into an index.
func wheel(t *testing.T, dir, name, version string, requires []string, files map[string]string) {
	t.Helper()
	if err := (testkit.Wheel{Name: name, Version: version, Requires: requires, Files: files}).Write(dir); err != nil {
		t.Fatal(err)
	}
}

// bench is a library, an index of wheels that pip finds without a network, and an
// interpreter.
type bench struct {
	dir, index string
	library    *environment.Library
	order      environment.Order
}

// newBench offers apple 1.0, which needs core-of.apple 2.0.
func newBench(t *testing.T) *bench {
	t.Helper()
	const python = "/usr/bin/python3"
	out, err := exec.CommandContext(t.Context(), python, "-c", "import pip, sys; print('%d.%d.%d' % sys.version_info[:3])").Output()
	if err != nil {
		testkit.Need(t, "pip", false, "no /usr/bin/python3 with pip")
	}
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{dir: filepath.Join(t.TempDir(), "environments"), index: t.TempDir()}
	t.Cleanup(b.open)
	b.library = b.again()
	wheel(t, b.index, "apple", "1.0", []string{"core-of.apple>=1"}, map[string]string{"apple/__init__.py": "import core_of_apple\ntaste = 'sweet'\n", "apple/broken.py": "def (:\n", "apple-1.0.data/scripts/eat": "#!python\n"})
	wheel(t, b.index, "core_of_apple", "2.0", nil, map[string]string{"core_of_apple.py": "seeds = 5\n"})
	b.order = environment.Order{
		Recipe: environment.Recipe{Name: "fruit", Packages: []string{"apple"}},
		Python: environment.Python{Path: real, Version: strings.TrimSpace(string(out))},
		Env:    []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "PIP_CONFIG_FILE=/dev/null", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + b.index, "PYTHONPATH=/nowhere"},
	}
	return b
}

// open lets the sets be removed.
func (b *bench) open() { _ = exec.Command("chmod", "-R", "u+w", b.dir).Run() }

// again is the library as another process has it.
func (b *bench) again() *environment.Library {
	return environment.New(environment.Config{Dir: b.dir})
}

func (b *bench) install(t *testing.T) environment.Report {
	t.Helper()
	r, err := b.library.Install(t.Context(), b.order)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

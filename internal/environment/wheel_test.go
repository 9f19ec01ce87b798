package environment_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// wheel makes a wheel by hand and returns its path. files are those of the package.
func wheel(t *testing.T, dir, name, version string, requires []string, files map[string]string) string {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	meta := "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
	for _, r := range requires {
		meta += "Requires-Dist: " + r + "\n"
	}
	all := map[string]string{info + "METADATA": meta, info + "WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
	maps.Copy(all, files)
	record := ""
	names := make([]string, 0, len(all))
	for f, text := range all {
		sum := sha256.Sum256([]byte(text))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
		names = append(names, f)
	}
	slices.Sort(names)
	all[info+"RECORD"] = record + info + "RECORD,,\n"
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range append(names, info+"RECORD") {
		part, err := w.Create(f)
		if err == nil {
			_, err = part.Write([]byte(all[f]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name+"-"+version+"-py3-none-any.whl")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", b.dir).Run() })
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

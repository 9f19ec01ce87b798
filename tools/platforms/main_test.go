package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestFaultsOfOtherSystemsAreFound: a file that only Windows compiles, in a package that imports
// another of its module and of the standard library.
func TestFaultsOfOtherSystemsAreFound(t *testing.T) {
	_, err := exec.LookPath("go")
	testkit.Need(t, "go", err == nil, "the go command is missing")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example.com/m\n\ngo 1.26.0\n",
		"p.go":              "package p\n\nimport (\n\t\"strings\"\n\n\t\"example.com/m/inner\"\n)\n\nvar Upper = strings.ToUpper(inner.Name())\n",
		"p_windows.go":      "package p\n\nfunc broken() { _ = missing }\n",
		"inner/i_linux.go":  "package inner\n\nfunc Name() string { return \"\" }\n",
		"inner/i_other.go":  "//go:build !linux\n\npackage inner\n\nfunc Name() string { return \"\" }\n",
		"inner/i_darwin.go": "package inner\n\nvar number int = 1\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), []string{dir, "linux/arm64", "darwin/arm64"}); err != nil {
		t.Errorf("linux and darwin: got %v, want no fault", err)
	}
	err = run(t.Context(), []string{dir, "darwin/arm64", "windows/amd64"})
	if err == nil || !strings.Contains(err.Error(), "windows/amd64") || !strings.Contains(err.Error(), "undefined: missing") || strings.Contains(err.Error(), "darwin") {
		t.Errorf("windows: got %v, want the undefined name on that system alone", err)
	}
}

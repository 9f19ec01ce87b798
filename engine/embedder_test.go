package engine_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// embedder is the program of another module in testdata.
func embedder(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/embedder/main.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAModuleOutsideUsesTheWholeLibrary builds a program in a module of its own, which cannot
// import internal packages, and runs it.
func TestAModuleOutsideUsesTheWholeLibrary(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole library once more")
	}
	_, missing := exec.LookPath("python3")
	testkit.Need(t, "python", missing == nil, "there is no python3 on the PATH")
	if _, missing = exec.LookPath("go"); missing != nil && os.Geteuid() != 0 {
		t.Skip("the user of the tests has no go on the PATH; the test runs as root as well")
	}
	e := openReal(t) // or skips, where no sandbox can be built
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"main.go": embedder(t), "go.sum": string(sums),
		"go.mod": "module example.com/embedder\n\ngo 1.26.0\n\nrequire github.com/sandboxmcp/sandboxmcp v0.0.0\n\nreplace github.com/sandboxmcp/sandboxmcp => " + root + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-o", "embedder", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: got %v:\n%s", err, out)
	}
	run := exec.CommandContext(ctx, "./embedder")
	run.Dir = dir
	run.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_STATE_HOME=" + filepath.Join(dir, "state")}
	if out, err := run.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("run: got %v and:\n%s\nwant ok", err, out)
	}
}

// TestTheEmbedderUsesEveryExportedVerb keeps the program complete.
func TestTheEmbedderUsesEveryExportedVerb(t *testing.T) {
	text := embedder(t)
	for m := range reflect.TypeFor[*engine.Engine]().Methods() {
		if !strings.Contains(text, "e."+m.Name+"(") {
			t.Errorf("got no call of Engine.%s, want one", m.Name)
		}
	}
	for _, decl := range declarations(t, ".") {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() && !strings.Contains(text, "engine."+f.Name.Name+"(") {
			t.Errorf("got no call of engine.%s, want one", f.Name.Name)
		}
	}
}

// declarations parses the declarations of a package, without its tests.
func declarations(t *testing.T, dir string) []ast.Decl {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []ast.Decl
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f.Decls...)
	}
	return all
}

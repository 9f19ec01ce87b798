package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// lines returns what a package with this text exports.
func lines(t *testing.T, text string) []string {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "p.go", "package p\n"+text, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: importer.Default()}
	pkg, err := conf.Check("example.com/p", set, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return describe(pkg)
}

const before = `
type Limits struct{ Seconds int; hidden []int }
func (l *Limits) Lower(by int, names ...string) error { return nil }
func (l Limits) String() string { return "" }
type Caller struct{ Name string }
type Runner interface{ Run(Limits) error }
type Code string
const CodeFull Code = "full"
var Default = Limits{}
func New(l Limits) (*Caller, error) { return nil, nil }
type inner struct{}
`

func TestEveryExportedThingHasALine(t *testing.T) {
	got := lines(t, before)
	slices.Sort(got)
	want := []string{
		`pkg p, const CodeFull Code = "full"`,
		"pkg p, func New(Limits) (*Caller, error)",
		"pkg p, method (*Limits) Lower(int, ...string) error",
		"pkg p, method (Limits) String() string",
		"pkg p, type Caller struct (comparable)",
		"pkg p, type Caller struct, Name string",
		"pkg p, type Code string",
		"pkg p, type Limits struct",
		"pkg p, type Limits struct, Seconds int",
		"pkg p, type Runner interface",
		"pkg p, type Runner interface, Run(Limits) error",
		"pkg p, var Default Limits",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

func TestIncompatibleChangesLoseALine(t *testing.T) {
	for name, change := range map[string][2]string{
		"field removed":          {"Seconds int; ", ""},
		"field of another type":  {"Seconds int", "Seconds int64"},
		"method removed":         {`func (l Limits) String() string { return "" }`, ""},
		"receiver is a pointer":  {"func (l Limits) String", "func (l *Limits) String"},
		"parameter added":        {"func New(l Limits)", "func New(l Limits, n int)"},
		"result of another type": {"(*Caller, error)", "(Caller, error)"},
		"constant changed":       {`"full"`, `"busy"`},
		"type renamed":           {"type Code string\nconst CodeFull Code", "type Word string\nconst CodeFull Word"},
		"no longer comparable":   {"Name string }", "Name string; Names []string }"},
		"method of an interface": {"Run(Limits) error", "Run(*Limits) error"},
		"variadic no longer":     {"names ...string", "names []string"},
		"exported no longer":     {"var Default", "var unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			after := strings.Replace(before, change[0], change[1], 1)
			if name == "result of another type" {
				after = strings.Replace(after, "{ return nil, nil }", "{ return Caller{}, nil }", 1)
			}
			if after == before {
				t.Fatal("the case changes nothing")
			}
			if gone := missing(lines(t, before), lines(t, after)); len(gone) == 0 {
				t.Error("got no line that is missing, want one")
			}
		})
	}
}

func TestCompatibleChangesLoseNoLine(t *testing.T) {
	for name, change := range map[string][2]string{
		"field added":          {"Seconds int", "Seconds int; More string"},
		"hidden field changed": {"hidden []int", "other map[string]int"},
		"parameter renamed":    {"New(l Limits)", "New(limits Limits)"},
		"method added":         {"type Code string", "type Code string\nfunc (c Code) Exit() int { return 1 }"},
		"interface may grow":   {"Run(Limits) error", "Run(Limits) error; Stop()"},
		"hidden type removed":  {"type inner struct{}", ""},
		"constant added":       {"const CodeFull", "const CodeBusy Code = \"busy\"\nconst CodeFull"},
	} {
		t.Run(name, func(t *testing.T) {
			after := strings.Replace(before, change[0], change[1], 1)
			if after == before {
				t.Fatal("the case changes nothing")
			}
			if gone := missing(lines(t, before), lines(t, after)); len(gone) > 0 {
				t.Errorf("got missing lines %q, want none", gone)
			}
		})
	}
}

// TestLibraryKeepsWhatItExports compares the library with docs/api.txt.
func TestLibraryKeepsWhatItExports(t *testing.T) {
	_, err := exec.LookPath("go")
	testkit.Need(t, "go", err == nil, "the go command is missing")
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", library[1])
	list.Dir = "../.."
	testkit.Need(t, "go", list.Run() == nil, "the modules of the library are not here")
	now, err := exported(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	was, err := recorded(filepath.Join("../..", golden))
	if err != nil || len(was) < 100 {
		t.Fatalf("%s: got %d lines and %v", golden, len(was), err)
	}
	if gone := missing(was, now); len(gone) > 0 {
		t.Errorf("incompatible change; programs may depend on:\n  %s", strings.Join(gone, "\n  "))
	}
	if added := missing(now, was); len(added) > 0 {
		t.Errorf("%s lacks what is new; run `make generate`:\n  %s", golden, strings.Join(added, "\n  "))
	}
}

// TestRemovalIsRefused: generating does not hide an incompatible change.
func TestRemovalIsRefused(t *testing.T) {
	_, err := exec.LookPath("go")
	testkit.Need(t, "go", err == nil, "the go command is missing")
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.26.0\n", "p.go": "package sandboxmcp\n\nfunc Kept() {}\n", "engine/e.go": "package engine\n", golden: "pkg sandboxmcp, func Gone()\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), []string{root}); err == nil || !strings.Contains(err.Error(), "func Gone()") {
		t.Errorf("got %v, want a refusal that names func Gone()", err)
	}
	if err := run(t.Context(), []string{"-accept", root}); err != nil {
		t.Fatal(err)
	}
	if got, err := recorded(filepath.Join(root, golden)); err != nil || !slices.Equal(got, []string{"pkg sandboxmcp, func Kept()"}) {
		t.Errorf("accepted: got %q and %v, want Kept alone", got, err)
	}
}

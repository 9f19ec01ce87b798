package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// A text of the product that a model may read, and where it stands.
type said struct{ at, text string }

// sources returns every text in the Go files of the product and in the drivers of its languages.
// hints has those that say what to do: arguments of WithHint, the table of codes and the notes.
func sources(t *testing.T) (all, hints []said) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bench", "bin", "tools", "testdata", "testkit", "backendtest", "clients", "docs", "scripts"}, name)):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			return nil
		case strings.HasSuffix(name, ".go"):
			a, h := textsOf(t, path)
			all, hints = append(all, a...), append(hints, h...)
		case filepath.Base(filepath.Dir(path)) == "drivers":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all = append(all, said{path, string(text)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, hints
}

func textsOf(t *testing.T, path string) (all, hints []said) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.ToSlash(path)
	isHint := strings.HasSuffix(name, "internal/note/note.go") || strings.HasSuffix(name, "../codes.go")
	collect := func(into *[]said) func(ast.Node) bool {
		return func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				*into = append(*into, said{files.Position(lit.Pos()).String(), text})
			}
			return true
		}
	}
	ast.Inspect(f, collect(&all))
	if isHint {
		return all, all
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "WithHint" {
			for _, arg := range call.Args {
				ast.Inspect(arg, collect(&hints))
			}
		}
		return true
	})
	return all, hints
}

// TestTextsNameOnlyTheToolsThatAreThere: no text of the product names a tool that is not built.
func TestTextsNameOnlyTheToolsThatAreThere(t *testing.T) {
	all, _ := sources(t)
	if len(all) < 1000 {
		t.Fatalf("got %d texts, want those of the whole product", len(all))
	}
	offered := toolTable(newFacts(Told{}, Five{}, true, false))
	for _, s := range all {
		// The audit record and events have an action of this name, whatever tools there are.
		if s.text == "install_package" {
			continue
		}
		if missing := missingTools(s.text, offered); missing != nil && !strings.HasSuffix(s.at, "magics.py") { // its hint depends on the tools
			t.Errorf("%s names %v, which are no tools", s.at, missing)
		}
	}
}

// TestHintsNameOnlyWhatIsThere: a word of a hint that looks like a parameter is one of a tool, a
// field of an answer, a tool, a setting or an error code.
func TestHintsNameOnlyWhatIsThere(t *testing.T) {
	_, hints := sources(t)
	if len(hints) < 100 {
		t.Fatalf("got %d hints, want those of the whole product", len(hints))
	}
	known := map[string]bool{}
	var fields func(s *jsonschema.Schema)
	fields = func(s *jsonschema.Schema) {
		for name, p := range s.Properties {
			known[name] = true
			fields(p)
		}
	}
	for _, x := range toolTable(newFacts(Told{}, Five{}, true, false)) {
		known[x.name] = true
		fields(x.in)
		fields(x.out)
	}
	settings, err := os.ReadFile(filepath.Join("..", "..", "docs", "config.md"))
	if err != nil {
		t.Fatal(err)
	}
	codes, err := os.ReadFile(filepath.Join("..", "..", "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`\b[a-z]+(_[a-z0-9]+)+\b`)
	for _, name := range word.FindAllString(string(settings), -1) {
		known[name] = true
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(string(codes), -1) {
		known[row[1]] = true
	}
	known["to_dict"], known["download_url"], known["results_truncated"] = true, true, true // of pandas, of a file, of metadata
	for _, h := range hints {
		for _, name := range word.FindAllString(h.text, -1) {
			if !known[name] {
				t.Errorf("%s names %s, which is no parameter, field, tool or setting: %q", h.at, name, h.text)
			}
		}
	}
}

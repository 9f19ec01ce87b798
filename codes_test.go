package sandboxmcp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// codeConstants returns the names and values of the Code constants of codes.go,
// and how many of the rows there begin with each name.
func codeConstants(t *testing.T) (values map[string]sandboxmcp.Code, rows map[string]int) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	values, rows = map[string]sandboxmcp.Code{}, map[string]int{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if typ, ok := n.Type.(*ast.Ident); ok && typ.Name == "Code" {
				v, err := strconv.Unquote(n.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				values[n.Names[0].Name] = sandboxmcp.Code(v)
			}
		case *ast.CompositeLit:
			if len(n.Elts) == 6 {
				if id, ok := n.Elts[0].(*ast.Ident); ok {
					rows[id.Name]++
				}
			}
		}
		return true
	})
	if len(values) < 40 {
		t.Fatalf("only %d constants were found in codes.go; the parsing is broken", len(values))
	}
	return values, rows
}

func TestEveryCodeHasOneRow(t *testing.T) {
	values, rows := codeConstants(t)
	names := map[sandboxmcp.Code]string{}
	for name, v := range values {
		if rows[name] != 1 {
			t.Errorf("%s has %d rows in codeRows, want 1", name, rows[name])
		}
		if other, twice := names[v]; twice {
			t.Errorf("%s and %s are both %q", name, other, v)
		}
		names[v] = name
	}
	for name := range rows {
		if _, ok := values[name]; !ok {
			t.Errorf("codeRows has a row for %s, which is no constant of this file", name)
		}
	}
	if got, want := len(sandboxmcp.CodeRows()), len(values); got != want {
		t.Errorf("CodeRows returns %d rows, want %d", got, want)
	}
}

func TestCodeRows(t *testing.T) {
	exits := map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true, 8: true, 9: true, 130: true}
	for _, r := range sandboxmcp.CodeRows() {
		if got := r.Code.Row(); got != r {
			t.Errorf("%s.Row() is that of %s", r.Code, got.Code)
		}
		if !exits[r.Exit] {
			t.Errorf("%s: exit status %d is not one of the contract's", r.Code, r.Exit)
		}
		if r.HTTP != 202 && (r.HTTP < 400 || r.HTTP > 599) {
			t.Errorf("%s: HTTP status %d is no failure", r.Code, r.HTTP)
		}
		if r.Retry != (r.HTTP == 202 || r.HTTP == 429 || r.HTTP == 502 || r.HTTP == 503) {
			t.Errorf("%s: retry is %v with HTTP status %d", r.Code, r.Retry, r.HTTP)
		}
		if r.Hint == "" || r.Doc == "" || !strings.HasSuffix(r.Doc, ".") || strings.Contains(r.Doc, "|") {
			t.Errorf("%s: hint %q and doc %q have to be there, the doc one sentence without a bar", r.Code, r.Hint, r.Doc)
		}
		if strings.ToLower(string(r.Code)) != string(r.Code) {
			t.Errorf("%s is not in lower case", r.Code)
		}
	}
	if got := sandboxmcp.Code("no such code").Row().Code; got != sandboxmcp.CodeInternal {
		t.Errorf("the row of an unknown code is that of %s, want internal", got)
	}
}

// TestCodesAreDocumented asks for every code with its statuses in docs/errors.md.
// That the file is exactly what the generator writes is checked by `make check`.
func TestCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/errors.md")
	if err != nil {
		t.Fatalf("%v; `make generate` writes it", err)
	}
	lines := strings.Split(string(text), "\n")
	for _, r := range sandboxmcp.CodeRows() {
		n := 0
		for _, l := range lines {
			if strings.HasPrefix(l, "| `"+string(r.Code)+"` |") {
				n++
				for _, want := range []string{strconv.Itoa(r.Exit), strconv.Itoa(r.HTTP), r.Doc} {
					if !strings.Contains(l, want) {
						t.Errorf("docs/errors.md: the line of %s lacks %q", r.Code, want)
					}
				}
			}
		}
		if n != 1 {
			t.Errorf("docs/errors.md has %d lines for %s, want 1; `make generate` writes them", n, r.Code)
		}
	}
}

// TestErrorBody: what is shown of a failure holds no cause, and a hint always.
func TestErrorBody(t *testing.T) {
	e := sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no file %q", "x").With("size_bytes", 3).WithCause(os.ErrClosed)
	b := e.Body()
	for k, want := range map[string]any{"error": "not_found", "message": `no file "x"`, "hint": "check the name", "size_bytes": 3} {
		if b[k] != want {
			t.Errorf("Body()[%q] = %v, want %v", k, b[k], want)
		}
	}
	if len(b) != 4 {
		t.Errorf("Body() = %v, want four fields", b)
	}
	if got := sandboxmcp.AsError(os.ErrClosed).Body()["message"]; strings.Contains(got.(string), "closed") {
		t.Errorf("an internal failure tells its cause: %q", got)
	}
}

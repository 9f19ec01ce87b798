package sandboxmcp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestExportedSignaturesNameNoInternalType: a program of another module can write down every
// type that the library asks for or returns.
func TestExportedSignaturesNameNoInternalType(t *testing.T) {
	for _, dir := range []string{".", "engine", "backend", "backend/process"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: got %d files and %v, want some", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			internal := internalImports(t, f)
			for _, decl := range f.Decls {
				for _, part := range exported(decl) {
					ast.Inspect(part, func(n ast.Node) bool {
						if s, ok := n.(*ast.SelectorExpr); ok {
							if x, ok := s.X.(*ast.Ident); ok && internal[x.Name] {
								t.Errorf("%s: got %s.%s in an exported signature, want no internal type", name, x.Name, s.Sel.Name)
							}
						}
						return true
					})
				}
			}
		}
	}
}

// internalImports returns the names under which a file imports internal packages.
func internalImports(t *testing.T, f *ast.File) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p, module+"/internal/") {
			continue
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = true
	}
	return names
}

// exported returns the types that a declaration shows to other packages.
func exported(decl ast.Decl) []ast.Node {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
			return []ast.Node{d.Type}
		}
	case *ast.GenDecl:
		var all []ast.Node
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					all = append(all, shownTypes(s.Type)...)
				}
			case *ast.ValueSpec:
				if s.Type != nil && s.Names[0].IsExported() {
					all = append(all, s.Type)
				}
			}
		}
		return all
	}
	return nil
}

// shownTypes returns the parts of a type that other packages see: all of it, but for the
// fields of a struct that are not exported.
func shownTypes(t ast.Expr) []ast.Node {
	s, ok := t.(*ast.StructType)
	if !ok {
		return []ast.Node{t}
	}
	var all []ast.Node
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 || f.Names[0].IsExported() {
			all = append(all, f.Type)
		}
	}
	return all
}

func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if g, ok := t.(*ast.IndexExpr); ok {
		t = g.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

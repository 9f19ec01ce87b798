// Command figures prints figures about the structure of the source tree in a directory: source
// lines per package, methods of the engine, declarations of the API, the types that a request
// passes from MCP to clone, the sizes of packages, and the words that the language rules forbid. It
// only parses the files, so it also works on old trees.
//
//	cd tools && go run ./figures ..
//
// It counts the lines of Go files that are neither tests nor generated.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	err := errors.New("usage: figures DIR")
	if len(os.Args) == 2 {
		var t *tree
		if t, err = parse(os.Args[1]); err == nil {
			err = t.report(os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// source is a Go file.
type source struct {
	room  string // its directory, from the root; "." is the root
	test  bool
	lines int
	file  *ast.File
}

// tree holds the Go files of a directory.
type tree struct {
	sources []source
}

// parse parses every Go file that is not generated, for every platform.
func parse(dir string) (*tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	t := &tree{}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (base[0] == '.' || base[0] == '_' || slices.Contains([]string{"testdata", "bin", "dist", "node_modules"}, base)):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		text, err := fs.ReadFile(root.FS(), name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(name), text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(f) {
			t.sources = append(t.sources, source{path.Dir(name), strings.HasSuffix(name, "_test.go"), bytes.Count(text, []byte("\n")), f})
		}
		return nil
	})
	if err == nil && len(t.sources) == 0 {
		err = fmt.Errorf("there is no Go file in %s", dir)
	}
	return t, err
}

// room holds the figures of a package.
type room struct {
	name               string
	lines, files       int
	testLines, testing int // lines and files of its tests
}

// rooms counts every package, the largest first.
func (t *tree) rooms() []room {
	by := map[string]*room{}
	for _, s := range t.sources {
		r := by[s.room]
		if r == nil {
			r = &room{name: s.room}
			by[s.room] = r
		}
		if s.test {
			r.testLines, r.testing = r.testLines+s.lines, r.testing+1
		} else {
			r.lines, r.files = r.lines+s.lines, r.files+1
		}
	}
	all := make([]room, 0, len(by))
	for _, r := range by {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(x, y room) int {
		if x.lines != y.lines {
			return y.lines - x.lines
		}
		return strings.Compare(x.name, y.name)
	})
	return all
}

// declarations calls fn for each declaration that is not in a test.
func (t *tree) declarations(fn func(room string, d ast.Decl)) {
	for _, s := range t.sources {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			fn(s.room, d)
		}
	}
}

// types calls fn for each type that is not in a test.
func (t *tree) types(fn func(room, name string, of ast.Expr)) {
	t.declarations(func(room string, d ast.Decl) {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			return
		}
		for _, spec := range g.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok {
				fn(room, s.Name.Name, s.Type)
			}
		}
	})
}

// methods counts the methods of a type.
func (t *tree) methods(room, name string) (n int) {
	t.declarations(func(in string, d ast.Decl) {
		f, ok := d.(*ast.FuncDecl)
		if !ok || in != room || f.Recv == nil || len(f.Recv.List) != 1 {
			return
		}
		of := f.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if id, ok := of.(*ast.Ident); ok && id.Name == name {
			n++
		}
	})
	return n
}

// report prints everything.
func (t *tree) report(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	rooms := t.rooms()
	var sum room
	packages, most := 0, rooms[0]
	for _, r := range rooms {
		sum.lines, sum.files, sum.testLines, sum.testing = sum.lines+r.lines, sum.files+r.files, sum.testLines+r.testLines, sum.testing+r.testing
		if r.files > 0 {
			packages++
		}
		if r.files > most.files {
			most = r
		}
	}
	p("source lines\t%d in %d files; tests %d in %d", sum.lines, sum.files, sum.testLines, sum.testing)
	p("largest package\t%s, %d lines", rooms[0].name, rooms[0].lines)
	p("files per package\t%.1f on average; most in %s, %d", float64(sum.files)/float64(max(packages, 1)), most.name, most.files)
	p("methods of engine.Engine\t%d", t.methods("engine", "Engine"))
	stops := t.stops()
	p("stops of a request\t%d: %s", len(stops), strings.Join(stops, ", "))
	verbs := t.verbs()
	total := 0
	for _, n := range verbs {
		total += n
	}
	p("declared verbs of the API\t%d in %d interfaces", total, len(verbs))
	for _, name := range slices.Sorted(maps.Keys(verbs)) {
		p("  %s\t%d", name, verbs[name])
	}
	words := t.words()
	total = 0
	for _, n := range words {
		total += n
	}
	p("replaced words\t%d", total)
	for _, word := range slices.Sorted(maps.Keys(words)) {
		p("  %s\t%d", word, words[word])
	}
	p("room\tlines\tfiles\tlines of tests")
	for _, r := range rooms {
		p("  %s\t%d\t%d\t%d", r.name, r.lines, r.files, r.testLines)
	}
	return w.Flush()
}

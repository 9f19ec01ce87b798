package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

// doors are the packages that declare methods of the API. Interfaces of backend and of the packages
// below it are not part of the API.
var doors = []string{".", "engine", "internal/api", "internal/app", "internal/cli", "internal/control", "internal/mcp", "internal/server"}

// minVerbs is how many methods an interface must declare to count as part of the API.
const minVerbs = 2

// verbs returns, for each interface of the doors, how many methods it declares itself that take a
// context.
func (t *tree) verbs() map[string]int {
	all := map[string]int{}
	t.types(func(room, name string, of ast.Expr) {
		i, ok := of.(*ast.InterfaceType)
		if !ok || !slices.Contains(doors, room) {
			return
		}
		n := 0
		for _, m := range i.Methods.List {
			if f, ok := m.Type.(*ast.FuncType); ok && takesContext(f) {
				n += len(m.Names)
			}
		}
		if n >= minVerbs {
			all[room+" "+name] = n
		}
	})
	return all
}

func takesContext(f *ast.FuncType) bool {
	if len(f.Params.List) == 0 {
		return false
	}
	s, ok := f.Params.List[0].Type.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Context"
}

// onTheWay lists the packages through which a request passes from MCP to clone, in order.
var onTheWay = []string{"internal/mcp", "internal/server", ".", "internal/control", "internal/api", "engine", "internal/kernel", "backend", "backend/process", "internal/jail"}

// stops lists the struct types in the packages of onTheWay that carry a program's environment,
// except configuration types. A request is converted from each of them to the next.
func (t *tree) stops() []string {
	by := map[string][]string{}
	t.types(func(room, name string, of ast.Expr) {
		s, ok := of.(*ast.StructType)
		if !ok || !slices.Contains(onTheWay, room) || strings.HasSuffix(name, "Config") || strings.HasSuffix(name, "Options") {
			return
		}
		for _, f := range s.Fields.List {
			for _, n := range f.Names {
				if strings.EqualFold(n.Name, "env") && isEnvironment(f.Type) {
					by[room] = append(by[room], room+" "+name)
				}
			}
		}
	})
	var all []string
	for _, room := range onTheWay {
		slices.Sort(by[room])
		all = append(all, by[room]...)
	}
	return all
}

// isEnvironment reports whether a type is a list or a map of strings.
func isEnvironment(e ast.Expr) bool {
	text := func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return ok && id.Name == "string"
	}
	switch e := e.(type) {
	case *ast.ArrayType:
		return text(e.Elt)
	case *ast.MapType:
		return text(e.Key) && text(e.Value)
	}
	return false
}

// Words that the language rules forbid in names and in comments.
var (
	namedWords = []string{"slot", "room", "hall", "shelf", "spare", "nest", "stock", "shape", "sight", "foresee", "unlock", "five", "whoever"}
	saidWords  = []string{"slot", "shelf", "nest", "stock", "whoever", "nobody", "somebody"}
)

// words counts the forbidden words in declared names and in comments, except in tests.
func (t *tree) words() map[string]int {
	all := map[string]int{}
	for _, s := range t.sources {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			for _, name := range declared(n) {
				for _, part := range parts(name.Name) {
					if w := singular(part); slices.Contains(namedWords, w) {
						all["name "+w]++
					}
				}
			}
			return true
		})
		for _, group := range s.file.Comments {
			for _, word := range strings.FieldsFunc(strings.ToLower(group.Text()), func(r rune) bool { return !unicode.IsLetter(r) }) {
				if w := singular(word); slices.Contains(saidWords, w) {
					all["text "+w]++
				}
			}
		}
	}
	return all
}

// declared returns the names that a node declares.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		var names []*ast.Ident
		for _, e := range n.Lhs {
			if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
				names = append(names, id)
			}
		}
		return names
	}
	return nil
}

func singular(word string) string {
	if cut, ok := strings.CutSuffix(word, "s"); ok {
		return cut
	}
	return word
}

// parts splits a name into its words, in lower case.
func parts(name string) []string {
	var all []string
	begin := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) {
			if word := strings.Trim(strings.ToLower(string(runes[begin:i])), "_"); word != "" {
				all = append(all, word)
			}
			begin = i
		}
	}
	return all
}

package host

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// besideBudget are the functions that list, follow or read without a budget, each with its reason. What others have made for a command
// to look at is not among these.
var besideBudget = map[string]string{
	"openPlain":            "its callers are checked",
	"binaryFile":           "it reads the first bytes of a file of a program",
	"loadersOf":            "it reads headers of a file of a program, within the kernel's bounds",
	"interpreterOf":        "it reads the first line of a file of a program",
	"program.open":         "it opens the file of a program, whose path has no links",
	"program.changedSince": "newProgram has followed the same ways within its budget",
	"Host.unchangeable":    "newProgram has followed the same ways within its budget",
	"settingsOfGit":        "the files are in the home of the server's own user",
	"expanded":             "the patterns are constants, and only administrators make what they find",
	"editable":             "the pattern is below directories of programs",
	"closedPlaces":         "it follows paths of the server's own settings",
	"closedOf":             "it follows the paths of homes, which administrators make",
	"closedIn":             "it follows the path of a home, which administrators make",
	"places.crowded":       "it follows the paths of homes, which administrators make",
	"keptBy":               "it follows the path of a home, which administrators make",
	"homes":                "it reads /etc/passwd and lists /home, which administrators write",
	"newTree":              "it follows paths of the settings",
	"openChecked":          "it follows a path that had no links before",
	"Files.openHere":       "it follows one path, which the kernel has opened",
	"entries":              "it shows the names to the caller, and has a bound of its own",
	"runConfined":          "it opens /dev/null",
	"start":                "it opens the file of a program, whose path has no links",
	"observed":             "it reads a file of the kernel",
	"yield":                "it opens a file of the kernel",
}

// TestEverythingLooksThroughTheBudget: a bound of its own for each new list or path would leave what they multiply to.
func TestEverythingLooksThroughTheBudget(t *testing.T) {
	looks := map[string][]string{
		"os":        list("ReadDir Open OpenFile ReadFile Readlink DirFS"),
		"filepath":  list("Glob EvalSymlinks Walk WalkDir"),
		"plainfile": list("Real Read Open Unlinked Links LeadsInto Walk"),
		"":          list("ReadDir Readdir Readdirnames LeadsInto openPlain"), // of any value
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	unused := maps.Clone(besideBudget)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "budget.go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			where := "a variable"
			if f, ok := d.(*ast.FuncDecl); ok {
				where = f.Name.Name
				if f.Recv != nil {
					of := f.Recv.List[0].Type
					if star, ok := of.(*ast.StarExpr); ok {
						of = star.X
					}
					where = of.(*ast.Ident).Name + "." + where
				}
			}
			ast.Inspect(d, func(n ast.Node) bool {
				from, what := "", ""
				switch n := n.(type) {
				case *ast.SelectorExpr:
					what = n.Sel.Name
					if x, ok := n.X.(*ast.Ident); ok {
						from = x.Name
					}
				case *ast.CallExpr:
					if x, ok := n.Fun.(*ast.Ident); ok {
						what = x.Name
					}
				}
				if !slices.Contains(looks[from], what) && !slices.Contains(looks[""], what) {
					return true
				}
				if besideBudget[where] == "" {
					t.Errorf("%s: %s uses %s.%s, want that it looks through the budget of the command", name, where, from, what)
				}
				delete(unused, where)
				return true
			})
		}
	}
	if len(unused) > 0 {
		t.Errorf("%v look at nothing, want them out of the list", slices.Sorted(maps.Keys(unused)))
	}
}

package sandboxmcp_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const maxFileLines = 600

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFileSizes: a file that cannot be read in one sitting is split.
func TestFileSizes(t *testing.T) {
	walk(t, func(file string) {
		if ext := path.Ext(file); ext != ".go" && ext != ".c" && ext != ".h" && ext != ".sh" && ext != ".py" && ext != ".js" {
			return
		}
		text := []byte(read(t, file))
		if bytes.Contains(text[:min(len(text), 2048)], []byte("DO NOT EDIT")) {
			return
		}
		if n := bytes.Count(text, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines, want at most %d", file, n, maxFileLines)
		}
	})
}

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// TestFuzzSeeds: a fuzz test whose corpus is empty tests nothing in `go test`.
func TestFuzzSeeds(t *testing.T) {
	walk(t, func(file string) {
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		text := read(t, file)
		for _, m := range fuzzFunc.FindAllStringSubmatchIndex(text, -1) {
			name, body := text[m[2]:m[3]], text[m[1]:]
			if next := strings.Index(body, "\n}\n"); next >= 0 {
				body = body[:next]
			}
			kept, err := filepath.Glob(filepath.Join(filepath.FromSlash(path.Dir(file)), "testdata", "fuzz", name, "*"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(body, ".Add(") && len(kept) == 0 {
				t.Errorf("%s: %s has no seed", file, name)
			}
		}
	})
}

var statement = regexp.MustCompile(`(?i)^\s*(SELECT\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|PRAGMA\s|SAVEPOINT\s|ROLLBACK\s+TO\s|RELEASE\s+\w+$)`)

// TestStatementsStandInOneFile: a room's SQL is in its sql.go, where it can be read and
// ported as a whole.
func TestStatementsStandInOneFile(t *testing.T) {
	rooms := map[string]bool{}
	walk(t, func(file string) {
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(file, "internal/") && !strings.HasPrefix(file, "engine/") {
			return
		}
		if slices.Contains(testRooms, path.Dir(file)) { // a test kit changes the database from outside
			return
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.FromSlash(file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			switch {
			case err != nil || !statement.MatchString(text):
			case path.Base(file) == "sql.go":
				rooms[path.Dir(file)] = true
			default:
				t.Errorf("%s: a statement stands here, want it in the sql.go of its room", set.Position(lit.Pos()))
			}
			return true
		})
	})
	if len(rooms) < 5 {
		t.Errorf("statements were found in %d rooms; the search is broken", len(rooms))
	}
}

var (
	called = regexp.MustCompile(`(FUNCTION )?\b([a-z_0-9]+)\(`)
	listed = regexp.MustCompile("(?s)postgresCalled = `(.*?)`")
)

// TestFunctionsOfStatementsAreListed: the comparison of the tables of PostgreSQL looks for functions with the names of all
// functions that statements and triggers call.
func TestFunctionsOfStatementsAreListed(t *testing.T) {
	const here = "internal/store/sql.go"
	list := listed.FindStringSubmatch(read(t, here))
	if list == nil {
		t.Fatalf("%s does not have the list", here)
	}
	noFunctions := []string{"coalesce", "greatest", "least", "nullif", "pragma_integrity_check", "wal_checkpoint"} // syntax, and what only SQLite has
	n := 0
	check := func(file, text string) {
		for _, m := range called.FindAllStringSubmatch(text, -1) {
			if m[1] != "" || slices.Contains(noFunctions, m[2]) {
				continue
			}
			if n++; !strings.Contains(list[1], "'"+m[2]+"'") {
				t.Errorf("%s calls %s, which is not in postgresCalled of %s", file, m[2], here)
			}
		}
	}
	walk(t, func(file string) {
		switch {
		case strings.HasPrefix(file, "internal/store/migrations/postgres/"):
			check(file, read(t, file))
		case path.Base(file) == "sql.go" && strings.HasPrefix(file, "internal/"):
			f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					check(file, lit.Value)
				}
				return true
			})
		}
	})
	if n < 50 {
		t.Errorf("%d calls were found; the search is broken", n)
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// TestLinks: a link from one document of the house to another leads somewhere.
func TestLinks(t *testing.T) {
	n := 0
	walk(t, func(file string) {
		if path.Ext(file) != ".md" {
			return
		}
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(m[1], ":") || strings.HasPrefix(m[1], "../../security/") {
				continue
			}
			n++
			to := path.Join(path.Dir(file), m[1])
			if _, err := os.Stat(filepath.FromSlash(to)); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			}
		}
	})
	if n < 5 {
		t.Errorf("only %d links were found; the search is broken", n)
	}
}

var adrName = regexp.MustCompile(`^(\d{4})-[a-z0-9-]+\.md$`)

// TestDecisions: each decision has a number of its own and the template's parts.
func TestDecisions(t *testing.T) {
	entries, err := os.ReadDir("docs/adr")
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]string{}
	for _, e := range entries {
		m := adrName.FindStringSubmatch(e.Name())
		if m == nil {
			t.Errorf("docs/adr/%s is not called NNNN-title.md", e.Name())
			continue
		}
		if other, twice := numbers[m[1]]; twice {
			t.Errorf("docs/adr: %s and %s have one number", e.Name(), other)
		}
		numbers[m[1]] = e.Name()
		text := read(t, "docs/adr/"+e.Name())
		for _, part := range []string{"# " + m[1] + ". ", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n"} {
			if !strings.Contains("\n"+text, part) {
				t.Errorf("docs/adr/%s lacks %q", e.Name(), strings.TrimSpace(part))
			}
		}
	}
	if len(numbers) < 2 {
		t.Errorf("docs/adr holds %d documents", len(numbers))
	}
}

// TestNoModuleThatEveryStartWaitsFor: the product links none of the modules whose packages compute so much
// before main that a start takes up to a millisecond longer (docs/adr/0090, 0093). Another library may bring them back.
func TestNoModuleThatEveryStartWaitsFor(t *testing.T) {
	text := read(t, "go.mod")
	for _, name := range []string{"github.com/moby/moby/", "github.com/distribution/reference", "github.com/opencontainers/go-digest", "go.opentelemetry.io/", "github.com/charmbracelet/x/ansi", "github.com/mattn/go-runewidth"} {
		if strings.Contains(text, "\t"+name) {
			t.Errorf("go.mod requires %s", name)
		}
	}
}

// TestReadmeFirstScreen: what a newcomer has to see without scrolling.
func TestReadmeFirstScreen(t *testing.T) {
	lines := strings.Split(read(t, "README.md"), "\n")
	first := strings.Join(lines[:min(len(lines), 45)], "\n")
	for _, want := range []string{"make demo", "make test", `"mcpServers"`, "claude mcp add"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first screen of README.md lacks %q", want)
		}
	}
	makefile := read(t, "Makefile")
	for _, target := range []string{"demo", "build", "test", "lint", "generate", "check", "bench"} {
		if !slices.ContainsFunc(strings.Split(makefile, "\n"), func(l string) bool { return strings.HasPrefix(l, target+":") }) {
			t.Errorf("the Makefile has no target %s", target)
		}
	}
}

// TestModulesOfKubernetesAgree: the test cluster's programs and the chart's tests use the versions of backend/kube,
// so that a build without a cache compiles what they share once. That is five minutes of a processor.
func TestModulesOfKubernetesAgree(t *testing.T) {
	required := regexp.MustCompile(`(?m)^\s+(\S+) (v\S+)`)
	replaced := regexp.MustCompile(`(?m)^(?:replace|\t)\s*(\S+) => \S+ (v\S+)`)
	versions := func(file string) map[string]string {
		text, out := read(t, file), map[string]string{}
		for _, m := range slices.Concat(required.FindAllStringSubmatch(text, -1), replaced.FindAllStringSubmatch(text, -1)) {
			out[m[1]] = m[2]
		}
		return out
	}
	product := versions("backend/kube/go.mod")
	for _, file := range []string{"backend/kube/deploy/go.mod", "backend/kube/e2e/control/go.mod"} {
		for module, got := range versions(file) {
			if want := product[module]; want != "" && got != want {
				t.Errorf("%s: %s has version %s, want %s as in backend/kube/go.mod", file, module, got, want)
			}
		}
	}
}

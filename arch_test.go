package sandboxmcp_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/sandboxmcp/sandboxmcp"

// rooms is the house: every package and what it may import of ours. "." is the
// root, "*" is anything. A package without a line may not exist; ARCHITECTURE.md
// holds the same table for readers and is compared with this one.
//
// Tests may import more: their own package and the test kits.
var rooms = map[string][]string{
	".":                        {},
	"backend":                  {"."},
	"backend/process":          {".", "backend", "internal/jail", "internal/jail/pool", "internal/jail/seccomp", "internal/cgroup", "internal/watch", "internal/runtimes"},
	"backend/docker":           {".", "backend", "backend/process", "internal/cgroup", "internal/dockerapi", "internal/image", "internal/jail", "internal/jail/bounds", "internal/jail/pool", "internal/jail/seccomp", "internal/relay"},
	"backend/backendtest":      {".", "backend", "internal/probe", "internal/testkit"},
	"internal/jail":            {".", "internal/jail/bounds", "internal/jail/pool", "internal/jail/seccomp"},
	"internal/jail/bounds":     {},
	"internal/jail/pool":       {},
	"internal/jail/seccomp":    {},
	"internal/cgroup":          {"."},
	"internal/relay":           {".", "backend", "internal/jail/bounds", "internal/jail/seccomp", "internal/plainfile"},
	"internal/watch":           {"internal/jail", "internal/cgroup"},
	"internal/plainfile":       {},
	"internal/share":           {},
	"internal/stack":           {},
	"internal/tuning":          {},
	"internal/pynames":         {},
	"internal/kernel":          {".", "backend", "internal/pynames", "internal/kernel/assemble"},
	"internal/kernel/assemble": {"internal/pynames"},
	"internal/runtimes":        {".", "internal/plainfile"},
	"internal/interpreter":     {".", "backend", "internal/environment", "internal/kernel"},
	"internal/egress":          {".", "backend"},
	"internal/environment":     {".", "internal/plainfile"},
	"internal/queue":           {"."},
	"internal/event":           {"."},
	"internal/stats":           {"."},
	"internal/note":            {".", "internal/pynames"},
	"internal/validate":        {".", "internal/pynames"},
	"internal/web":             {".", "internal/egress"},
	"internal/browser":         {".", "backend", "internal/egress"},
	"internal/pdf":             {".", "backend"},
	"internal/resolver":        {"."},
	"internal/installed":       {".", "internal/store", "internal/audit"},
	"internal/packages":        {".", "internal/egress", "internal/environment", "internal/plainfile", "internal/pynames"},
	"internal/run":             {".", "backend", "internal/kernel", "internal/stream", "internal/redact"},
	"internal/session":         {".", "backend", "internal/store", "internal/kernel", "internal/run", "internal/stream", "internal/artifact", "internal/redact"},
	"internal/limits":          {".", "internal/store", "internal/audit"},
	"internal/store":           {".", "internal/plainfile"},
	"internal/sign":            {".", "internal/plainfile"},
	"internal/audit":           {".", "internal/store", "internal/plainfile"},
	"internal/gate":            {".", "internal/store", "internal/audit"},
	"internal/host":            {".", "internal/store", "internal/audit", "internal/gate", "internal/jail", "internal/plainfile"},
	"internal/gateway":         {".", "backend", "internal/egress", "internal/gate", "internal/event", "internal/redact", "internal/store", "internal/audit"},
	"internal/artifact":        {".", "backend", "internal/store", "internal/sign"},
	"internal/redact":          {"."},
	"internal/stream":          {"."},
	"internal/vault":           {".", "internal/store", "internal/audit", "internal/plainfile"},
	"internal/guard":           {".", "backend", "internal/artifact", "internal/audit", "internal/kernel", "internal/redact", "internal/store", "internal/vault"},
	"internal/config":          {".", "internal/plainfile"},
	"internal/listen":          {"."},
	"internal/door":            {".", "internal/listen", "internal/plainfile", "internal/share"},
	"internal/oauth":           {"."},
	"internal/jsonparts":       {},
	"internal/terminal":        {},
	"internal/enroll":          {".", "internal/plainfile"},
	"internal/probe":           {"."},
	"internal/image":           {".", "internal/dockerapi"},
	"internal/dockerapi":       {},
	"internal/api":             {".", "internal/jsonparts", "internal/listen", "internal/share", "internal/stack"},
	"internal/server":          {".", "internal/door", "internal/jsonparts", "internal/listen", "internal/share", "internal/stack", "internal/stream", "internal/terminal"},
	"engine": {
		".", "backend", "backend/process", "backend/docker",
		"internal/store", "internal/sign", "internal/stack", "internal/audit", "internal/artifact", "internal/kernel",
		"internal/interpreter", "internal/environment", "internal/queue", "internal/session", "internal/config", "internal/event", "internal/gate", "internal/gateway", "internal/egress", "internal/guard", "internal/host", "internal/limits", "internal/stats",
		"internal/vault", "internal/redact", "internal/run", "internal/note", "internal/validate", "internal/web", "internal/browser", "internal/pdf", "internal/packages", "internal/resolver", "internal/installed", "internal/plainfile",
	},
	"internal/app": {
		".", "backend", "engine", "internal/kernel", "internal/interpreter", "internal/runtimes", "internal/environment", "internal/store", "internal/sign", "internal/audit", "internal/artifact", "internal/config", "internal/gate", "internal/installed", "internal/vault",
		"internal/api", "internal/door", "internal/listen", "internal/oauth", "internal/server", "internal/plainfile", "internal/probe", "internal/stack", "internal/tuning",
	},
	"internal/cli": {
		".", "internal/app", "internal/store", "internal/sign", "internal/audit", "internal/artifact", "internal/environment", "internal/config",
		"internal/api", "internal/plainfile", "internal/terminal", "internal/enroll", "internal/image", "internal/tuning",
	},
	"cmd/sandboxmcp":   {"internal/cli"},
	"internal/testkit": {},

	"internal/store/storetest": {"internal/store"},
	"internal/clients":         {"internal/server"},

	// Modules of their own.
	"backend/kube":                      {".", "backend", "backend/kube/agent", "internal/config", "internal/jail/bounds", "internal/jail/seccomp", "internal/relay"},
	"backend/kube/agent":                {"internal/jail/seccomp", "internal/relay"},
	"backend/kube/cmd/sandboxmcp-agent": {"backend/kube/agent"},
	"backend/kube/cmd/sandboxmcp-kube":  {"backend/kube", "backend/kube/objects", "internal/app", "internal/cli"},
	"backend/kube/deploy":               {},
	"backend/kube/e2e/control":          {},
	"backend/kube/e2e/control/kube":     {},
	"backend/kube/e2e/control/support":  {},
	"backend/kube/e2e/node":             {},
	"backend/kube/objects":              {".", "internal/store"},

	"bench":               {"*"},
	"tools/api":           {},
	"tools/docs":          {".", "internal/api", "internal/cli", "internal/config", "internal/image", "internal/server", "tools/manual"},
	"tools/figures":       {},
	"tools/manual":        {"internal/cli"},
	"tools/platforms":     {},
	"tools/release":       {"internal/cli", "tools/manual"},
	"tools/drivers":       {"internal/kernel/assemble"},
	"tools/seccomptables": {},
	"tools/testsum":       {},
	"tools/tree":          {},
	"tools/usualfilters":  {"internal/jail/seccomp"},
}

// testRooms are packages for tests: only they may import testing outside
// _test.go files, and every test may import them.
var testRooms = []string{"internal/testkit", "internal/store/storetest", "backend/backendtest"}

// noRooms are names that promise nothing.
var noRooms = []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "base", "shared", "lib"}

// source is a Go file of the module, parsed as far as its imports.
type source struct {
	file    string // slash-separated, from the root
	room    string // its package's directory
	pkg     string // the name in its package clause
	test    bool
	imports []string
}

// sources parses every Go file of the tree itself, for every platform and build
// tag: a list made by the go command would leave out the other systems' files,
// and its answer would be cached.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	walk(t, func(file string) {
		if path.Ext(file) != ".go" {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		s := source{file: file, room: path.Dir(file), pkg: f.Name.Name, test: strings.HasSuffix(file, "_test.go")}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatalf("%s: import %s: %v", file, i.Path.Value, err)
			}
			s.imports = append(s.imports, p)
		}
		all = append(all, s)
	})
	if len(all) < 20 {
		t.Fatalf("only %d Go files were found; the walk is broken", len(all))
	}
	return all
}

// walk calls fn for every file of the tree that is ours.
func walk(t *testing.T, fn func(file string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != "." && (name[0] == '.' && name != ".ci" || name[0] == '_' || slices.Contains([]string{"testdata", "bin", "dist", "node_modules"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		fn(filepath.ToSlash(p))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ours returns the room that an import names, if it is one of this module.
func ours(imp string) (room string, ok bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

func TestRooms(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		line, known := rooms[s.room]
		if !known && !seen[s.room] {
			t.Errorf("package %s has no line in the table of rooms", s.room)
		}
		seen[s.room] = true
		for _, imp := range s.imports {
			room, ok := ours(imp)
			if !ok || slices.Contains(line, room) || slices.Contains(line, "*") {
				continue
			}
			if s.test && (room == s.room || slices.Contains(testRooms, room)) {
				continue
			}
			if s.file == "example_test.go" && room == "engine" { // shows what a program that embeds the library writes
				continue
			}
			t.Errorf("%s imports %s, which its room's line does not allow: %v", s.file, room, line)
		}
	}
	for room := range rooms {
		if !seen[room] {
			t.Errorf("the table has a line for %s, and there is no such package", room)
		}
	}
}

func TestRoomLaws(t *testing.T) {
	for _, s := range sources(t) {
		name := path.Base(s.room)
		if slices.Contains(noRooms, name) || slices.Contains(noRooms, s.pkg) {
			t.Errorf("%s: package %s promises nothing by its name", s.file, s.pkg)
		}
		forTests := slices.Contains(testRooms, s.room)
		for _, imp := range s.imports {
			switch {
			case imp == "C":
				t.Errorf("%s uses cgo; the binary is static", s.file)
			case imp == "testing" && !s.test && !forTests:
				t.Errorf("%s imports testing; only tests and test kits do", s.file)
			case s.room == "." && !s.test && strings.Contains(strings.Split(imp, "/")[0], "."):
				t.Errorf("%s imports %s; the root has the standard library only", s.file, imp)
			}
			if room, ok := ours(imp); ok && !s.test && !forTests && slices.Contains(testRooms, room) {
				t.Errorf("%s imports %s, which is for tests", s.file, room)
			}
		}
	}
}

// TestRoomLawsOfTheTable holds the table itself to the laws of the house.
func TestRoomLawsOfTheTable(t *testing.T) {
	for room, line := range rooms {
		if slices.Contains(line, "*") {
			continue
		}
		if room != "internal/app" && slices.Contains(line, "engine") && slices.Contains(line, "internal/server") {
			t.Errorf("%s may import engine and server together; only internal/app does", room)
		}
		for _, to := range line {
			if _, ok := rooms[to]; !ok {
				t.Errorf("%s may import %s, which has no line", room, to)
			}
			if reaches(to, room, map[string]bool{}) {
				t.Errorf("%s and %s import each other", room, to)
			}
		}
	}
}

// reaches reports whether the table lets from import to, directly or not.
func reaches(from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(rooms[from], func(r string) bool { return reaches(r, to, seen) })
}

func TestRoomsInArchitecture(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, row := range tableAfter(t, string(text), "<!-- rooms") {
		room := strings.Trim(row[0], "`")
		if _, twice := got[room]; twice {
			t.Errorf("ARCHITECTURE.md has two lines for %s", room)
		}
		got[room] = []string{}
		for to := range strings.FieldsSeq(row[len(row)-1]) {
			if to = strings.Trim(to, "`,"); to != "–" {
				got[room] = append(got[room], to)
			}
		}
		slices.Sort(got[room])
	}
	want := map[string][]string{}
	for room, line := range rooms {
		want[room] = append([]string{}, line...)
		slices.Sort(want[room])
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the table in ARCHITECTURE.md is not that of this test (-test +document):\n%s", d)
	}
	if len(slices.Collect(maps.Keys(got))) == 0 {
		t.Error("no table was found in ARCHITECTURE.md")
	}
}

// tableAfter returns the cells of the rows of the first Markdown table after
// the mark, less its head.
func tableAfter(t *testing.T, text, mark string) [][]string {
	t.Helper()
	_, text, ok := strings.Cut(text, mark)
	if !ok {
		t.Fatalf("there is no %q", mark)
	}
	var rows [][]string
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if !strings.HasPrefix(l, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(l, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("there is no table after %q", mark)
	}
	return rows[2:] // the head and the line of dashes
}

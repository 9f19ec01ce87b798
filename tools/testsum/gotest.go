package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // set for build-output and build-fail
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// gotest collects the events of a `go test -json`.
type gotest struct {
	*suite
	out     io.Writer
	output  map[string][]string // output of tests, packages and builds that have not ended
	parents map[string]bool     // tests that have subtests
	failed  map[string]bool     // packages and parents in which a failure was counted already
	ran     map[string]int      // tests per package
	running map[string]bool     // tests that have not ended
	broken  map[string]bool     // packages whose test program ended before all tests had run
}

// readGo counts tests without subtests. It counts a parent only if it failed without a
// failed subtest, and a package only if it failed without a failed test (a build error, a
// panic).
func readGo(name string, r io.Reader, out io.Writer) (*suite, error) {
	g := &gotest{
		suite: &suite{Name: name}, out: out,
		output: map[string][]string{}, parents: map[string]bool{}, failed: map[string]bool{}, ran: map[string]int{}, running: map[string]bool{}, broken: map[string]bool{},
	}
	err := lines(r, func(line []byte) {
		var e event
		if line[0] != '{' || json.Unmarshal(line, &e) != nil {
			fmt.Fprintf(out, "%s\n", line) // output of the go command itself
			return
		}
		g.take(e)
	})
	return g.suite, err
}

func (g *gotest) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "run":
		g.running[key] = true
		for p := parent(e.Test); p != ""; p = parent(p) {
			g.parents[e.Package+" "+p] = true
		}
	case "output":
		g.output[key] = append(g.output[key], e.Output)
		if strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ") {
			g.broken[e.Package] = true
		}
	case "build-output":
		g.output[e.ImportPath] = append(g.output[e.ImportPath], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			g.endPackage(e)
		} else {
			delete(g.running, key)
			g.endTest(e, key)
		}
		delete(g.output, key)
	}
}

func (g *gotest) endTest(e event, key string) {
	name := short(e.Package) + "." + e.Test
	switch {
	case e.Action == "fail" && g.failed[key]: // because of its subtests, which are counted
	case e.Action == "fail":
		g.fail(name)
		g.Alone = append(g.Alone, alone{Test: name, Dir: directory(e.Package), Run: pattern(e.Test)})
		g.failed[e.Package+" "] = true
		for p := parent(e.Test); p != ""; p = parent(p) {
			g.failed[e.Package+" "+p] = true
		}
		fmt.Fprintf(g.out, "FAIL  %s\n%s", name, indent(g.output[key]))
	case g.parents[key]:
		return
	case e.Action == "skip":
		g.Skips = append(g.Skips, skip{Test: name, Reason: reason(g.output[key])})
	default:
		g.Passed++
	}
	g.ran[e.Package]++
}

func (g *gotest) endPackage(e event) {
	key := e.Package + " "
	var unended []string // a panic, an exit or a timeout ends tests without an event for each
	for k := range g.running {
		if strings.HasPrefix(k, key) {
			unended = append(unended, k)
			delete(g.running, k)
		}
	}
	switch {
	case e.Action == "fail" && (!g.failed[key] || len(unended) > 0 || g.broken[e.Package]):
		g.fail(short(e.Package))
		fmt.Fprintf(g.out, "FAIL  %s\n%s%s", short(e.Package), indent(g.output[e.FailedBuild]), indent(g.output[key]))
		for _, k := range unended {
			fmt.Fprintf(g.out, "      not ended: %s\n%s", k, indent(g.output[k]))
		}
	case e.Action == "fail":
		fmt.Fprintf(g.out, "FAIL  %s (%.1f s)\n%s", short(e.Package), e.Elapsed, indent(g.output[key])) // includes the seed of the shuffle
	case g.ran[e.Package] > 0:
		fmt.Fprintf(g.out, "ok    %s  %d tests (%.1f s)\n", short(e.Package), g.ran[e.Package], e.Elapsed)
	}
}

// parent returns the name of the test that a subtest belongs to, or "".
func parent(test string) string {
	i := strings.LastIndexByte(test, '/')
	if i < 0 {
		return ""
	}
	return test[:i]
}

const product = "github.com/sandboxmcp/sandboxmcp"

// directory returns where a package stands in the checkout.
func directory(pkg string) string {
	return "." + strings.TrimPrefix(pkg, product)
}

// pattern returns what go test -run takes for this test alone.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func short(pkg string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg, product+"/"), "github.com/sandboxmcp/")
}

func indent(output []string) string {
	var b strings.Builder
	for l := range strings.Lines(strings.Join(output, "")) {
		b.WriteString("      " + l)
		if !strings.HasSuffix(l, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

var frame = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// reason returns the output of a test before it was skipped.
func reason(output []string) string {
	var said []string
	for l := range strings.Lines(strings.Join(output, "")) {
		if s := strings.TrimSpace(l); frame.MatchString(l) {
			said = append(said, frame.ReplaceAllString(s, ""))
		} else if len(said) > 0 && s != "" && !strings.HasPrefix(s, "--- ") && !strings.HasPrefix(s, "=== ") {
			said = append(said, s)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

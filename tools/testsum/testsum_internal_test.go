package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goStream = `go: downloading something
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"run","Package":"m/a","Test":"TestTable"}
{"Action":"run","Package":"m/a","Test":"TestTable/one"}
{"Action":"pass","Package":"m/a","Test":"TestTable/one"}
{"Action":"run","Package":"m/a","Test":"TestTable/two"}
{"Action":"output","Package":"m/a","Test":"TestTable/two","Output":"    a_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"m/a","Test":"TestTable/two"}
{"Action":"fail","Package":"m/a","Test":"TestTable"}
{"Action":"run","Package":"m/a","Test":"TestSkip"}
{"Action":"output","Package":"m/a","Test":"TestSkip","Output":"=== RUN   TestSkip\n"}
{"Action":"output","Package":"m/a","Test":"TestSkip","Output":"    a_test.go:12: needs root: no\n"}
{"Action":"output","Package":"m/a","Test":"TestSkip","Output":"--- SKIP: TestSkip (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestSkip"}
{"Action":"fail","Package":"m/a","Elapsed":1.5}
{"ImportPath":"m/b [m/b.test]","Action":"build-output","Output":"b.go:1: undefined: x\n"}
{"ImportPath":"m/b [m/b.test]","Action":"build-fail"}
{"Action":"fail","Package":"m/b","FailedBuild":"m/b [m/b.test]"}
{"Action":"run","Package":"m/c","Test":"TestHang"}
{"Action":"output","Package":"m/c","Test":"TestHang","Output":"panic: too long\n"}
{"Action":"fail","Package":"m/c"}
{"Action":"skip","Package":"m/d"}
`

func TestGoCounts(t *testing.T) {
	var out bytes.Buffer
	got, err := readGo("root", strings.NewReader(goStream), &out)
	if err != nil {
		t.Fatal(err)
	}
	want := &suite{
		Name: "root", Passed: 2, Failed: 3,
		Skips:    []skip{{Test: "m/a.TestSkip", Reason: "needs root: no"}},
		Failures: []string{"m/a.TestTable/two", "m/b", "m/c"},
		Alone:    []alone{{Test: "m/a.TestTable/two", Dir: ".m/a", Run: "^TestTable$/^two$"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
	for _, want := range []string{"go: downloading something", "got 1, want 2", "undefined: x", "panic: too long"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got a report without %q, want it:\n%s", want, &out)
		}
	}
}

const kitStream = `ok    cli/run_code  42 (0.3 s)
skip  cli/twins  excepted: sessions are not built yet (it says: number is 3) (1.2 s)
FAIL  cli/verify  exit is 2, not 0 (0.1 s)
        promise:  verify prints
1 passed, 1 failed, 1 skipped
`

func TestKitCounts(t *testing.T) {
	for _, c := range []struct {
		name, in string
		failures []string
		hides    string
	}{
		{"whole", kitStream, []string{"cli/verify"}, "1 passed"},
		{"broken off", strings.ReplaceAll(kitStream, "1 passed, 1 failed, 1 skipped\n", ""), []string{"cli/verify", "the kit did not come to its end"}, "1 passed"},
		{"miscounted", strings.ReplaceAll(kitStream, "1 passed,", "7 passed,"), []string{"cli/verify", "the kit counts 7 passed, 1 failed, 1 skipped, its lines are 1 1 1"}, "7 passed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			got, err := readKit("kit", strings.NewReader(c.in), &out)
			if err != nil {
				t.Fatal(err)
			}
			want := &suite{
				Name: "kit", Passed: 1, Failed: len(c.failures), Failures: c.failures,
				Skips: []skip{{Test: "cli/twins", Reason: "excepted: sessions are not built yet"}},
				Alone: []alone{{Test: "cli/verify", Dir: ".", Run: "cli/verify"}},
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("counts (-want +got):\n%s", d)
			}
			if strings.Contains(out.String(), c.hides) {
				t.Errorf("got the kit's closing line handed on, want it dropped:\n%s", &out)
			}
		})
	}
}

func TestTotal(t *testing.T) {
	dir := t.TempDir()
	file := func(n string) string { return filepath.Join(dir, n) }
	var out bytes.Buffer
	call := func(stdin string, args ...string) int { return run(args, strings.NewReader(stdin), &out, &out) }

	if got := call(goStream, "go", "root", file("a")); got != 1 {
		t.Errorf("status with failures = %d, want 1", got)
	}
	if got := call("", "note", "nothing-left", file("b"), "pass", "all gone"); got != 0 {
		t.Errorf("status of a good note = %d, want 0", got)
	}
	if got := call("", "note", "init", file("c"), "skip", "no compiler"); got != 0 {
		t.Errorf("status of a skip = %d, want 0", got)
	}
	out.Reset()
	if got := call("", "total", file("a"), file("b"), file("c")); got != 1 {
		t.Errorf("status of the total = %d, want 1", got)
	}
	if !strings.HasSuffix(out.String(), "\n3 passed, 3 failed, 2 skipped\n") {
		t.Errorf("got no closing line, want one:\n%s", &out)
	}
	out.Reset()
	if got := call("", "total", file("b")); got != 0 || !strings.HasSuffix(out.String(), "\n1 passed, 0 failed, 0 skipped\n") {
		t.Errorf("status = %d, want 0, with closing line:\n%s", got, &out)
	}
}

// TestATestThatPassesAloneIsUnsteady: it is counted as passed and named.
func TestATestThatPassesAloneIsUnsteady(t *testing.T) {
	f := filepath.Join(t.TempDir(), "a")
	var out bytes.Buffer
	call := func(stdin string, args ...string) int {
		out.Reset()
		return run(args, strings.NewReader(stdin), &out, &out)
	}
	stream, _, _ := strings.Cut(goStream, `{"ImportPath"`)
	stream = strings.ReplaceAll(stream, "m/a", product+"/engine")
	call(stream, "go", "root", f)
	if got, want := call("", "failed", f), "engine.TestTable/two\t./engine\t^TestTable$/^two$\n"; got != 0 || out.String() != want {
		t.Errorf("failed: got status %d, %q; want 0, %q", got, &out, want)
	}
	if got := call("", "alone", f, "engine.TestGood"); got != 1 {
		t.Errorf("alone, of a test that has passed: got status %d, want 1", got)
	}
	if got := call("", "alone", f, "engine.TestTable/two"); got != 0 {
		t.Errorf("alone: got status %d, want 0: %s", got, &out)
	}
	if got := call("", "total", f); got != 0 || !strings.Contains(out.String(), "UNSTEADY  root: engine.TestTable/two") || !strings.HasSuffix(out.String(), "\n3 passed, 0 failed, 1 skipped\n") {
		t.Errorf("total: got status %d, want 0 and the name of the test:\n%s", got, &out)
	}
}

// TestNotAllIsRunAgain: what cannot be run alone, and many failures, stay failures.
func TestNotAllIsRunAgain(t *testing.T) {
	many := `{"Action":"run","Package":"m/a","Test":"TestTable"}` + "\n"
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		many += `{"Action":"fail","Package":"m/a","Test":"Test` + name + `"}` + "\n"
	}
	for name, stream := range map[string]string{
		"Build": goStream, "Many": many,
		"Panic": `{"Action":"run","Package":"m/a","Test":"TestPanics"}
{"Action":"output","Package":"m/a","Test":"TestPanics","Output":"panic: no [recovered]\n"}
{"Action":"fail","Package":"m/a","Test":"TestPanics"}
{"Action":"fail","Package":"m/a"}
`,
		"Exit": `{"Action":"run","Package":"m/a","Test":"TestOther"}
{"Action":"run","Package":"m/a","Test":"TestPanics"}
{"Action":"fail","Package":"m/a","Test":"TestPanics"}
{"Action":"fail","Package":"m/a"}
`,
	} {
		t.Run(name, func(t *testing.T) {
			f := filepath.Join(t.TempDir(), "a")
			var out bytes.Buffer
			run([]string{"go", "root", f}, strings.NewReader(stream), &out, &out)
			out.Reset()
			if got := run([]string{"failed", f}, nil, &out, &out); got != 0 || out.Len() != 0 {
				t.Errorf("got status %d, %q; want 0 and no test", got, &out)
			}
		})
	}
}

func TestNothingRunIsAFailure(t *testing.T) {
	f := filepath.Join(t.TempDir(), "a")
	var out bytes.Buffer
	if got := run([]string{"go", "root", f}, strings.NewReader(""), &out, &out); got != 1 {
		t.Errorf("status of an empty stream = %d, want 1", got)
	}
	if got := run([]string{"total", f}, nil, &out, &out); got != 1 || !strings.Contains(out.String(), "ran nothing") {
		t.Errorf("status = %d, want 1, and a word:\n%s", got, &out)
	}
	if !strings.HasSuffix(out.String(), "\n0 passed, 1 failed, 0 skipped\n") {
		t.Errorf("got closing line, want 0 passed, 1 failed, 0 skipped:\n%s", &out)
	}
}

func TestUsage(t *testing.T) {
	var out bytes.Buffer
	for _, args := range [][]string{nil, {"go"}, {"note", "a", "b", "maybe", "c"}, {"total"}} {
		if got := run(args, nil, &out, &out); got != 2 {
			t.Errorf("status of %q = %d, want 2", args, got)
		}
	}
	if got := run([]string{"total", filepath.Join(t.TempDir(), "none")}, nil, &out, &out); got != 1 {
		t.Errorf("status for a missing file = %d, want 1", got)
	}
	if _, err := os.Stat("none"); err == nil {
		t.Error("got a file in the package's directory, want none")
	}
}

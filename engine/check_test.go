package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// checked is a check that has to succeed.
func checked(t *testing.T, e *engine.Engine, c sandboxmcp.CodeCheck) sandboxmcp.CodeReport {
	t.Helper()
	r, err := e.Validate(t.Context(), sandboxmcp.Caller{}, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// compiles is the process backend that compiles at once, and counts what it has compiled.
type compiles struct {
	*process.Backend
	mu  sync.Mutex
	got map[string]int
}

func (c *compiles) Compiled(in backend.Interpreter, name string, text []byte) ([]byte, func(context.Context)) {
	code, prepare := c.Backend.Compiled(in, name, text)
	if prepare != nil {
		prepare(context.Background())
		code, _ = c.Backend.Compiled(in, name, text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if code != nil {
		c.got[name]++
	}
	return code, nil
}

// TestChecksAreCompiledOnce: the program that checks Python code is not compiled for each check, and
// finds the same as its text.
func TestChecksAreCompiledOnce(t *testing.T) {
	text := openReal(t, func(c *engine.Config) { c.Backends[0] = onlyText{c.Backends[0]} })
	needs(t, text, sandboxmcp.Python)
	b := &compiles{got: map[string]int{}}
	e := openReal(t, func(c *engine.Config) {
		b.Backend, _ = c.Backends[0].(*process.Backend)
		c.Backends[0] = b
	})
	for _, code := range []string{"print(math.pi)\nos.system('x')", "x = (", "print('h\u00e4l')\x00", "if 1:\n\tx = 1\n        y = 2\n", strings.Repeat("(", 3000)} {
		for range 2 {
			got, want := checked(t, e, sandboxmcp.CodeCheck{Code: code}), checked(t, text, sandboxmcp.CodeCheck{Code: code})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%.20q (-text +compiled):\n%s", code, diff)
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.got["check.py"] != 10 {
		t.Errorf("got %v, want the compiled check ten times", b.got)
	}
}

// onlyText is the process backend without its compiler.
type onlyText struct{ backend.Backend }

// TestChecksAreRecorded: the record has the verdict of each check and not the code, and no run.
func TestChecksAreRecorded(t *testing.T) {
	dir := t.TempDir()
	e := openReal(t, at(dir))
	needs(t, e, sandboxmcp.Python)
	const secret = "kept_out_of_the_record"
	for _, code := range []string{"x = '" + secret + "'", "print(math.pi) # " + secret, secret + " ="} {
		checked(t, e, sandboxmcp.CodeCheck{Code: code})
	}
	checked(t, e, sandboxmcp.CodeCheck{Code: "echo " + secret, Language: sandboxmcp.Shell})
	for status, n := range stats(e).Executions {
		if n != 0 {
			t.Errorf("got %d runs that are %s, want none counted", n, status)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, r := range rows(t, dir, "default") {
		said = append(said, r.Action+" "+r.Detail)
		if strings.Contains(r.Detail, secret) || r.Metadata["code_sha256"] == nil {
			t.Errorf("got %+v, want a hash and no code", r)
		}
	}
	want := []string{
		"validation_passed python: pass, issues=0 fixes=0", "validation_fixed python: fixed, issues=0 fixes=1",
		"validation_failed python: reject, issues=1 fixes=0", "validation_passed shell: pass, issues=0 fixes=0",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// TestCheckedCodeIsNotRun: neither while it is parsed nor after it was corrected.
func TestCheckedCodeIsNotRun(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	started := time.Now()
	for _, code := range []string{"import time\ntime.sleep(60)", "time.sleep(60)", "x = [0] * 10**12", "open('/mnt/data/f', 'w')\nraise SystemExit(3)"} {
		if r := checked(t, e, sandboxmcp.CodeCheck{Code: code}); !r.Valid {
			t.Errorf("%q: got %+v, want it valid", code, r.Issues)
		}
	}
	if d := time.Since(started); d > time.Minute {
		t.Errorf("it took %s: the code was run", d)
	}
}

// TestDangerousCodeIsRefused: with the setting, and with the issues; other code runs.
func TestDangerousCodeIsRefused(t *testing.T) {
	e := openReal(t, func(c *engine.Config) { c.RejectDangerous, c.UncheckedRules = true, []string{"eval()"} })
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
	for language, code := range map[sandboxmcp.Language]string{"python": "print('ran')\nimport os\nos.system('x')", "shell": "echo ran\nchmod 777 .", "node": "process.exit(0)"} {
		r := sandboxmcp.Request{Language: language, Code: code}
		_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
		failed := asCode(t, err, sandboxmcp.CodeValidationFailed)
		found, _ := failed.Fields["issues"].([]sandboxmcp.Issue)
		if len(found) != 1 || found[0].Severity != sandboxmcp.SeverityError || found[0].Line != strings.Count(code, "\n")+1 {
			t.Errorf("%s: got issues %v, want the last line's", language, found)
		}
		begun, err := e.Start(t.Context(), sandboxmcp.Caller{}, r)
		if err == nil { // the interpreter of a Python program refuses it, after the caller was told its id
			_, err = e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: begun.RequestID, Wait: time.Minute})
		}
		asCode(t, err, sandboxmcp.CodeValidationFailed)
	}
	if res := execute(t, e, sandboxmcp.Request{Code: "print(eval('6*7'))"}); res.Stdout != "42\n" {
		t.Errorf("got %q, want other code to run", res.Stdout)
	}
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: "print(6*"}) // what cannot be parsed cannot be searched
	asCode(t, err, sandboxmcp.CodeValidationFailed)
}

func TestBadChecks(t *testing.T) {
	e := open(t, &fake{}, func(c *engine.Config) { c.MaxCodeBytes = 10 })
	for code, check := range map[sandboxmcp.Code]sandboxmcp.CodeCheck{
		sandboxmcp.CodeInvalidArgument:     {Code: " \n"},
		sandboxmcp.CodeCodeTooLarge:        {Code: "12345678901"},
		sandboxmcp.CodeUnsupportedLanguage: {Code: "x", Language: "cobol"},
	} {
		_, err := e.Validate(t.Context(), sandboxmcp.Caller{}, check)
		wantCode(t, err, code)
	}
	_, err := e.Validate(t.Context(), of("a b"), sandboxmcp.CodeCheck{Code: "x", Language: sandboxmcp.Shell})
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
}

// TestChecksWithSmallBounds: the text of the check itself is not held to max_code_bytes, and a
// bound that the check meets is told as such.
func TestChecksWithSmallBounds(t *testing.T) {
	e := openReal(t, func(c *engine.Config) { c.MaxCodeBytes = 2000 })
	needs(t, e, sandboxmcp.Python)
	if r := checked(t, e, sandboxmcp.CodeCheck{Code: "x = 1"}); !r.Valid {
		t.Errorf("got %+v, want it valid", r)
	}
	hidden := openReal(t, func(c *engine.Config) { c.RejectDangerous = true })
	_, err := hidden.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: strings.Repeat("!ls\n", 300) + "import os\nos.system('x')"})
	asCode(t, err, sandboxmcp.CodeValidationFailed)
}

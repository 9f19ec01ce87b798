package engine_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// openFor opens an engine whose first request will be r, and waits until an interpreter waits for it.
func openFor(t *testing.T, r sandboxmcp.Request) *engine.Engine {
	t.Helper()
	var b backend.Backend
	e := openReal(t, func(c *engine.Config) { b, c.First = c.Backends[0], &r })
	needs(t, e, r.Language)
	if !testkit.Within(t, time.Minute, func() bool { return b.(backend.Pooler).Pool()["processes_ahead"] == 1 }) {
		t.Fatalf("got %v, want an interpreter that waits", b.(backend.Pooler).Pool())
	}
	return e
}

// ages are programs that print 1 if their interpreter was started long before them.
var ages = map[sandboxmcp.Language]string{
	sandboxmcp.Python: "import os, time\nstart = int(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[19]) / os.sysconf('SC_CLK_TCK')\nprint(+(time.clock_gettime(time.CLOCK_BOOTTIME) - start > .3))",
	sandboxmcp.Node:   "console.log(+(process.uptime() > .3))",
	sandboxmcp.Shell:  "grep -c BASH_ENV /proc/$$/environ",
}

// TestFirstRequestFindsItsInterpreter: the interpreter of Config.First starts while the engine opens.
func TestFirstRequestFindsItsInterpreter(t *testing.T) {
	for l, code := range ages {
		t.Run(string(l), func(t *testing.T) {
			r := sandboxmcp.Request{Code: code, Language: l}
			e := openFor(t, r)
			time.Sleep(400 * time.Millisecond) // it is known by its age
			if got := execute(t, e, r); got.Stdout != "1\n" {
				t.Errorf("got %q %q, want 1: the interpreter that waited", got.Stdout, got.Stderr)
			}
			if got := execute(t, e, sandboxmcp.Request{Code: code, Language: l}); got.Stdout != "0\n" {
				t.Errorf("the second request: got %q %q, want 0: an interpreter of its own", got.Stdout, got.Stderr)
			}
		})
	}
}

// TestFirstInAnOpenDirectory: the search for the first interpreter writes a file to the state directory before the
// store opens. The engine still accepts an empty state directory that other users may read.
func TestFirstInAnOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := sandboxmcp.Request{Code: "echo 1", Language: sandboxmcp.Shell} // a shell is found soonest
	env := []string{"PATH=/usr/bin:/bin"}
	o := engine.Options{Settings: engine.Settings{Values: map[string]any{"state_dir": dir}, Env: env}, Env: env, First: &r}
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if got := execute(t, e, r); got.Stdout != "1\n" {
		t.Errorf("got %q %q, want 1", got.Stdout, got.Stderr)
	}
}

// TestAnotherFirstRequest: a request that Config.First did not say runs as it would without it.
func TestAnotherFirstRequest(t *testing.T) {
	for name, r := range map[string]sandboxmcp.Request{
		"Environment": {Code: "import os; print(os.environ['A'])", Env: map[string]string{"A": "ok"}},
		"Input":       {Code: "print(input())", Stdin: []byte("ok")},
		"Memory":      {Code: "print('ok')", Limits: sandboxmcp.Limits{MaxRAMMB: 64}},
		"File":        {Code: "print('ok', end='' if __file__.endswith('/mine.py') else 'no')", FileName: "mine.py"},
		"Language":    {Code: "echo ok", Language: sandboxmcp.Shell},
		"Display":     {Code: "print('ok')\n1", Display: sandboxmcp.DisplayNone},
	} {
		t.Run(name, func(t *testing.T) {
			e := openFor(t, sandboxmcp.Request{Code: "print(1)", Language: sandboxmcp.Python, Display: sandboxmcp.DisplayResults})
			if r.Language == "" {
				r.Language = sandboxmcp.Python
			}
			if got := execute(t, e, r); strings.TrimSpace(got.Stdout) != "ok" || got.Stderr != "" {
				t.Errorf("got %q %q, want ok", got.Stdout, got.Stderr)
			}
		})
	}
}

// TestFirstIsWhatACallerSees: a caller sees no difference between a Python that was started while the engine
// opened and one that was started for its program.
func TestFirstIsWhatACallerSees(t *testing.T) {
	plain := openReal(t, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends = []backend.Backend{process.New(process.Config{NoPool: true})}
	})
	for name, code := range forkPrograms {
		for _, display := range []sandboxmcp.Display{sandboxmcp.DisplayNone, sandboxmcp.DisplayResults} {
			t.Run(name+"/"+string(display), func(t *testing.T) {
				r := sandboxmcp.Request{Code: code, Language: sandboxmcp.Python, Display: display}
				want, got := seen(execute(t, plain, r)), seen(execute(t, openFor(t, r), r))
				if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("results differ (-started for the program +started ahead):\n%s", diff)
				}
			})
		}
	}
}

package engine_test

import (
	"fmt"
	"os"
	"strconv"
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

// starts are programs that print when their interpreter was started: its field 22 of /proc/PID/stat, in ticks since the machine's start.
var starts = map[sandboxmcp.Language]string{
	sandboxmcp.Python: "print(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[19])",
	sandboxmcp.Node:   "console.log(require('fs').readFileSync('/proc/self/stat', 'utf8').split(') ').pop().split(' ')[19])",
	sandboxmcp.Shell:  "text=$(</proc/$$/stat) && set -- ${text##*) } && echo ${20}",
}

// ticks returns the time since the machine's start in ticks, of which Linux shows a hundred a second.
func ticks(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	var seconds, hundredths int64
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d.%d", &seconds, &hundredths)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 100*seconds + hundredths
}

// TestFirstRequestFindsItsInterpreter: the interpreter of Config.First starts while the engine opens.
func TestFirstRequestFindsItsInterpreter(t *testing.T) {
	for l, code := range starts {
		t.Run(string(l), func(t *testing.T) {
			r := sandboxmcp.Request{Code: code, Language: l}
			e := openFor(t, r)
			started := func() int64 {
				got := execute(t, e, r)
				at, err := strconv.ParseInt(strings.TrimSpace(got.Stdout), 10, 64)
				if err != nil {
					t.Fatalf("got %q %q: %v", got.Stdout, got.Stderr, err)
				}
				return at
			}
			time.Sleep(50 * time.Millisecond) // some ticks
			asked := ticks(t)
			if at := started(); at >= asked {
				t.Errorf("the interpreter was started at %d, want before the request at %d", at, asked)
			}
			time.Sleep(50 * time.Millisecond)
			asked = ticks(t)
			if at := started(); at < asked-1 {
				t.Errorf("the second request: its interpreter was started at %d, want after the request at %d", at, asked)
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

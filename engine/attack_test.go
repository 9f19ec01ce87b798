package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// launcher puts the files of an attack into a directory and becomes it: in this
// process, or in a child of a shell's or of node's.
const launcher = `
def _attack(spec):
    import json, os, sys
    spec = json.loads(spec)
    d = '/tmp/attack'
    os.makedirs(d, exist_ok=True)
    for name, text in spec['files'].items():
        with open(d + '/' + name, 'w') as f: f.write(text)
    os.environ.update(spec['env'])
    main = d + '/' + spec['main']
    if main.endswith('.sh'):
        if spec['become']: os.execv('/bin/sh', ['sh', main])
        import subprocess
        print(subprocess.run(['/bin/sh', main], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True).stdout, end='', flush=True)
        return
    if spec['become']: os.execv(sys.executable, [sys.executable, main])
    sys.path.insert(0, d)
    with open(main) as f: code = compile(f.read(), main, 'exec')
    exec(code, {'__name__': '__main__', '__file__': main, '__builtins__': __builtins__})
_attack(`

// attacker is a way in which code of a caller is run.
type attacker struct {
	language sandboxmcp.Language
	session  bool
	code     func(launcher string) string
	// other are outcomes that differ by what a session shows of itself, by payload.
	other map[string]map[string]string
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// wasReady is what a single run says on stderr whose interpreter was there before
// the request: Python by its number in the sandbox, for between init and a fork
// there was another process; bash by the file that it waited in; node by its clock.
const wasReady = "this was ready\n"

func plainCode(s string) string { return s }
func forkCode(s string) string {
	return "import os, sys\nif os.getpid() == 3: print('this was ready', file=sys.stderr)\n" + s
}

func shellCode(s string) string {
	return "grep -q BASH_ENV /proc/$$/environ && echo this was ready >&2\nexec python3 - <<'--end--'\n" + s + "\n--end--\n"
}
func childCode(s string) string { return "python3 - <<'--end--'\n" + s + "\n--end--\n" }
func nodeCode(s string) string {
	return fmt.Sprintf("if (Date.now() - process.uptime() * 1000 < %d) console.error('this was ready')\n", time.Now().UnixMilli()) +
		"require('child_process').spawnSync('python3', ['-c', " + quoted(s) + "], {stdio: ['ignore', 'inherit', 'inherit']})"
}

// ownChannel: an interpreter of Python has the pipe over which it reports, and in a
// session another by which it gets its cells.
var ownChannel = map[string]map[string]string{"a04-fd-leak.py": {"open": "3 10600|3 10600 4 10600"}}

// ownProcesses: a child of a session's interpreter sees that interpreter and no other process.
var ownProcesses = map[string]map[string]string{
	"a24-view.py":        {"parent": "2|3|4", "session": "2"}, // of a shell, which starts others of its own
	"a07-proc-peek.py":   {"seen": "*"},
	"b03-kill-others.py": {"reachable": "*", "all": "reached", "tgkill": "*"},
}

var attackers = map[string]attacker{
	"ForkedPython":  {language: sandboxmcp.Python, code: forkCode, other: ownChannel},
	"ShellAhead":    {language: sandboxmcp.Shell, code: shellCode},
	"NodeAhead":     {language: sandboxmcp.Node, code: nodeCode, other: ownProcesses},
	"PythonSession": {language: sandboxmcp.Python, session: true, code: plainCode, other: ownChannel},
	"ShellSession":  {language: sandboxmcp.Shell, session: true, code: childCode, other: ownProcesses},
	"NodeSession":   {language: sandboxmcp.Node, session: true, code: nodeCode, other: ownProcesses},
}

// attacked are the limits that the attacks try, and how they come to sandboxes.
var (
	attacked = sandboxmcp.Limits{MaxRAMMB: 256, MaxProcesses: 4}
	walled   = backend.Spec{MaxTasks: 64, WorkBytes: 128 << 20, WorkInodes: 20_000, TempBytes: 64 << 20}
)

// warm runs programs of a language until the engine keeps something ready for them, and
// reports whether that came about.
func warm(t *testing.T, e *engine.Engine, b backend.Backend, l sandboxmcp.Language) bool {
	t.Helper()
	pool := b.(backend.Pooler)
	return testkit.Within(t, 20*time.Second, func() bool {
		if l == sandboxmcp.Python {
			execute(t, e, sandboxmcp.Request{Code: "import time; time.sleep(.05)", Language: l})
			return pool.Pool()["zygotes"] > 0
		}
		for range 2 { // the second request has the engine make some ready
			execute(t, e, sandboxmcp.Request{Code: "1", Language: l})
		}
		if testkit.Within(t, 400*time.Millisecond, func() bool {
			n := pool.Pool()
			return n["processes_ahead"] > 0 && n["processes_ahead"] == n["slots_ready"]
		}) {
			return true
		}
		_ = pool.Trim(t.Context())
		return false
	})
}

// request returns a request that runs an attack.
func (by attacker) request(t *testing.T, a backendtest.Attack) sandboxmcp.Request {
	t.Helper()
	files := map[string]string{}
	for _, f := range a.Files {
		files[f.Name] = string(f.Data)
	}
	spec, err := json.Marshal(map[string]any{"files": files, "env": a.Env, "main": a.Main, "become": by.language != sandboxmcp.Python})
	if err != nil {
		t.Fatal(err)
	}
	return sandboxmcp.Request{Code: by.code(launcher + quoted(string(spec)) + ")\n"), Language: by.language, Limits: sandboxmcp.Limits{TimeoutSeconds: 60}.Over(attacked)}
}

// beside runs the program that an attack looks for, in a session of another namespace, until
// the test ends.
func beside(t *testing.T, e *engine.Engine, a backendtest.Attack) {
	t.Helper()
	by := attackers["PythonSession"]
	r := by.request(t, a)
	neighbor := of("neighbour")
	r.SessionID = create(t, e, sandboxmcp.SessionSpec{Language: by.language, Limits: attacked}, neighbor)
	r.Limits.MaxRAMMB, r.Limits.MaxProcesses = 0, 0
	up := make(chan struct{})
	r.Stdout = brokenWriter(sync.OnceFunc(func() { close(up) }))
	ctx, cancel := context.WithCancel(t.Context())
	wait := executeIn(ctx, t, e, r, neighbor)
	t.Cleanup(func() {
		cancel()
		_, _ = wait()
	})
	select {
	case <-up:
	case <-timeUp(t, 20*time.Second):
		t.Fatal("got no output of the neighbor within 20 s, want a sign that it runs")
	}
}

// attack runs an attack and returns what it printed.
func attack(t *testing.T, e *engine.Engine, by attacker, a backendtest.Attack) string {
	t.Helper()
	if !by.session {
		var res sandboxmcp.Result
		rest := ""
		testkit.Until(t, "the attack runs in an interpreter that was ready", func() (ok bool) {
			res = execute(t, e, by.request(t, a))
			rest, ok = strings.CutPrefix(res.Stderr, wasReady)
			return ok
		})
		if testing.Verbose() && rest != "" {
			t.Logf("%s: %s", res.Status, rest)
		}
		return res.Stdout
	}
	id := create(t, e, sandboxmcp.SessionSpec{Language: by.language, Limits: attacked})
	r := by.request(t, a)
	r.SessionID = id
	r.Limits.MaxRAMMB, r.Limits.MaxProcesses = 0, 0
	res := execute(t, e, r)
	if testing.Verbose() && res.Stderr != "" {
		t.Logf("%s: %s", res.Status, res.Stderr)
	}
	stillServes(t, e, id, by.language)
	if err := e.CloseSession(t.Context(), sandboxmcp.Caller{}, id); err != nil {
		t.Error(err)
	}
	return res.Stdout
}

// stillServes: whatever a run did to its session, the next one is answered, and a
// file comes in and goes out.
func stillServes(t *testing.T, e *engine.Engine, id sandboxmcp.SessionID, l sandboxmcp.Language) {
	t.Helper()
	hello := map[sandboxmcp.Language]string{sandboxmcp.Python: "print('hello')", sandboxmcp.Node: "console.log('hello')", sandboxmcp.Shell: "echo hello"}[l]
	if res := execute(t, e, sandboxmcp.Request{SessionID: id, Code: hello}); !res.Success || res.Stdout != "hello\n" {
		t.Errorf("the run after it: got %s %q %q, want hello", res.Status, res.Stdout, res.Stderr)
	}
	upload := func() (err error) {
		// What a fork bomb left behind in the background takes seconds to give up.
		testkit.Within(t, 30*time.Second, func() bool {
			_, _, err = e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: "after.txt", Content: []byte("after"), Overwrite: true})
			return sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionBusy
		})
		return err
	}
	err := upload()
	if sandboxmcp.CodeOf(err) == sandboxmcp.CodeFileTooLarge { // full of files; its owner can make room
		for _, name := range []string{"i0", "i1"} {
			if err := e.RemoveFile(t.Context(), sandboxmcp.Caller{}, id, name); err != nil {
				t.Error(err)
			}
		}
		err = upload()
	}
	if err != nil {
		t.Errorf("an upload after it: got %v, want nil", err)
	}
	if _, data, err := e.ReadFile(t.Context(), sandboxmcp.Caller{}, id, "after.txt", 100); err != nil || string(data) != "after" {
		t.Errorf("a file after it: got %q, %v; want after", data, err)
	}
}

// TestAttacksOfEveryKind runs the suite's attacks in each way that an engine runs code.
func TestAttacksOfEveryKind(t *testing.T) {
	for name, by := range attackers {
		t.Run(name, func(t *testing.T) {
			e := openReal(t)
			needs(t, e, sandboxmcp.Python, by.language)
			iso := execute(t, e, sandboxmcp.Request{Code: "1", Language: by.language}).Isolation
			for _, a := range backendtest.Attacks(t, backendtest.Options{Tier: iso.Tier, HeldLimits: iso.Tier.AtLeast(sandboxmcp.TierL3)}, walled) {
				t.Run(a.Name, func(t *testing.T) {
					if a.Beside != nil {
						beside(t, e, *a.Beside)
					}
					out := attack(t, e, by, a)
					a.Check(t, out, by.other[a.Name])
					if t.Failed() {
						t.Log(out)
					}
				})
			}
		})
	}
}

package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// greed is a cell that takes whatever it gets, until it is ended.
type greed struct {
	code   string
	limits sandboxmcp.Limits // of its run
	want   []sandboxmcp.Status
	stays  bool // something of it may live on, so that there is no room for what writes files
}

var forever = sandboxmcp.Limits{TimeoutSeconds: 1}

// greedy are cells of each language. All of them are small against the limits of
// the sandbox that they are tried in.
var greedy = map[sandboxmcp.Language]map[string]greed{
	sandboxmcp.Python: {
		"forks":           {"import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, true},
		"threads":         {"import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(600,)).start()\n    except RuntimeError: pass", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut, sandboxmcp.StatusFailed}, true},
		"output":          {"while True: print('x' * 65536)", sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"errors":          {"import os\nwhile True: os.write(2, b'x' * 65536)", sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"output of many":  {"import os\nfor _ in range(8): os.fork()\nwhile True: os.write(1, b'x' * 65536)", sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"processor":       {"while True: pass", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stubborn":        {"import signal, time\nfor s in signal.valid_signals():\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stopped":         {"import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stops everybody": {"import os, signal, subprocess\nc = [subprocess.Popen(['sleep', '600']) for _ in range(5)]\nos.kill(-1, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"words":           {"import os, struct\ns = b'{\"type\":\"later\",\"id\":1,\"x\":\"%s\"}' % (b'x' * 1000)\ns = struct.pack('>I', len(s)) + s\nwhile True: os.write(3, s)", sandboxmcp.Limits{TimeoutSeconds: 20}, []sandboxmcp.Status{sandboxmcp.StatusFailed, sandboxmcp.StatusSignalled}, false},
		"descriptors":     {"import os\nl = []\nwhile True:\n    try: l.append(os.dup(1))\n    except OSError: pass", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
	},
	sandboxmcp.Node: {
		"processes": {"const { spawn } = require('child_process'); for (;;) { try { spawn('/bin/sleep', ['600']).on('error', () => {}) } catch {} }", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"output":    {"for (;;) require('fs').writeSync(1, 'x'.repeat(65536))", sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"processor": {"for (;;);", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stubborn":  {"process.on('SIGINT', () => {}); process.on('SIGTERM', () => {}); for (;;) try { for (;;); } catch {}", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stopped":   {"process.kill(process.pid, 'SIGSTOP')", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"heap":      {"const a = []; for (;;) a.push('x'.repeat(1e6) + a.length)", sandboxmcp.Limits{TimeoutSeconds: 30}, []sandboxmcp.Status{sandboxmcp.StatusOutOfMemory, sandboxmcp.StatusSignalled, sandboxmcp.StatusFailed}, false},
	},
	sandboxmcp.Shell: {
		"forks":     {"f() { f | f; }; f; while :; do :; done", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"output":    {"yes", sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"errors":    {"yes >&2", sandboxmcp.Limits{}, []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}, false},
		"processor": {"while :; do :; done", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stubborn":  {"trap '' INT TERM HUP QUIT; while :; do :; done", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"stopped":   {"kill -STOP $$", forever, []sandboxmcp.Status{sandboxmcp.StatusTimedOut}, false},
		"variable":  {"x=x; while :; do x=$x$x; done", sandboxmcp.Limits{TimeoutSeconds: 30}, []sandboxmcp.Status{sandboxmcp.StatusOutOfMemory, sandboxmcp.StatusSignalled, sandboxmcp.StatusFailed}, false},
	},
}

// TestGreedySessions: a cell that takes what it gets is ended with the status that
// says why, its session serves on, and a session beside it is not touched.
func TestGreedySessions(t *testing.T) {
	e := openReal(t, func(c *engine.Config) { c.MaxSessions = 50 })
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell)
	limits := attacked
	limits.MaxOutputBytes = 64 << 10
	other := create(t, e, sandboxmcp.SessionSpec{}, of("other"))
	beside := in(other, "kept = 1")
	execute(t, e, beside, of("other"))
	beside.Code = "print(kept)"
	for l, cells := range greedy {
		for name, g := range cells {
			t.Run(string(l)+"/"+name, func(t *testing.T) {
				id := create(t, e, sandboxmcp.SessionSpec{Language: l, Limits: limits})
				r := in(id, g.code)
				r.Limits = g.limits
				res := execute(t, e, r)
				if !slices.Contains(g.want, res.Status) {
					t.Errorf("got %s, want one of %s; %.300q", res.Status, g.want, res.Stderr)
				}
				if int64(len(res.Stdout)) > limits.MaxOutputBytes+1000 || int64(len(res.Stderr)) > limits.MaxOutputBytes+1000 {
					t.Errorf("%d and %d bytes of output are kept of %d that are allowed", len(res.Stdout), len(res.Stderr), limits.MaxOutputBytes)
				}
				if res := execute(t, e, beside, of("other")); res.Stdout != "1\n" || res.StateLost {
					t.Errorf("a session beside it: %s %q %q", res.Status, res.Stdout, res.Stderr)
				}
				if ended(t, e, id) {
					return
				}
				if g.stays {
					_, _, err := e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: "x", Content: []byte("x")})
					if err != nil {
						wantCode(t, err, sandboxmcp.CodeSessionBusy)
					}
					if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{}, id); err != nil {
						t.Error(err)
					}
					return
				}
				stillServes(t, e, id, l)
			})
		}
	}
}

// ended tells whether a session has gone with its sandbox, which may be where a
// server has to hold the limit on memory itself.
func ended(t *testing.T, e *engine.Engine, id sandboxmcp.SessionID) bool {
	t.Helper()
	held := execute(t, e, sandboxmcp.Request{Code: "1", Language: sandboxmcp.Python}).Isolation.Tier.AtLeast(sandboxmcp.TierL3)
	_, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
	gone := sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionExpired
	if gone && held {
		t.Errorf("the session is gone: %v", err)
	}
	return gone
}

// TestMemoryOfSessions: however a session's cell or a child of it holds memory, it
// gets no more than the session's limit.
func TestMemoryOfSessions(t *testing.T) {
	e := openReal(t, func(c *engine.Config) { c.MaxSessions = 50 })
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell)
	program := string(backendtest.Payload(t, "d01-memory.py"))
	limits := sandboxmcp.Limits{MaxRAMMB: 96, MaxProcesses: 4}
	for by, kinds := range map[string][]string{
		"PythonSession": {"anonymous", "shared", "memfd", "shm", "tmp", "children", "renamed"},
		"ShellSession":  {"anonymous", "memfd", "shm"},
		"NodeSession":   {"anonymous", "shared", "tmp"},
	} {
		by, name := attackers[by], by
		for _, kind := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				l := limits
				if by.language == sandboxmcp.Node {
					l.MaxRAMMB = 160 // it has to start
				}
				id := create(t, e, sandboxmcp.SessionSpec{Language: by.language, Limits: l})
				r := in(id, by.code(fmt.Sprintf("import os\nos.environ['KIND'], os.environ['TMPDIR'] = %q, '/tmp'\nexec(compile(%s, 'd01', 'exec'), {'__name__': '__main__'})\n", kind, quoted(program))))
				r.Limits.TimeoutSeconds = 30
				res := execute(t, e, r)
				refused, kills := strings.HasPrefix(res.Stdout, "refused"), res.Status == sandboxmcp.StatusOutOfMemory || res.Metadata["oom_kills"] != nil
				if !refused && !kills {
					t.Errorf("neither ended for memory nor refused: %s %q %.300q %v", res.Status, res.Stdout, res.Stderr, res.Metadata)
				}
				if limit := float64(l.MaxRAMMB + 1); kills && res.Isolation.Tier.AtLeast(sandboxmcp.TierL3) && res.Usage.PeakRAMMB > limit {
					t.Errorf("it had %v MiB of %d", res.Usage.PeakRAMMB, l.MaxRAMMB)
				}
				t.Logf("%s %q, peak %v MiB, lost %v", res.Status, res.Stdout, res.Usage.PeakRAMMB, res.StateLost)
				if ended(t, e, id) {
					return
				}
				stillServes(t, e, id, by.language)
			})
		}
	}
}

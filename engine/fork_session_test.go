package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// endless marks a cell that is interrupted.
const endless = "# endless\n"

// forkCells are run by an interpreter that was executed and by one that was forked.
var forkCells = map[string][]string{
	"Start":        {"import sys\nprint(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.warnoptions, sys.executable, len(sys.path_hooks))", "print(sys.meta_path)\nprint(sorted(sys.modules))"},
	"Names":        {"print(sorted(globals()), __name__, __spec__, __loader__)", "import builtins; print(sorted(dir(builtins)))", "help, exit, quit"},
	"Value":        {"40 + 2", "_ + 1", "print(_, __)"},
	"State":        {"x = [1]\ndef f(): return x", "f().append(2); f()", "import json; json.dumps(x)", "json.loads('[3]')"},
	"Exception":    {"def f():\n    return 1/0", "f()", "import sys; print(sys.last_value)", "raise KeyError('x') from ValueError('y')"},
	"Syntax":       {"x = 1\nprint(", "x"},
	"Exit":         {"x = 1", "import sys; sys.exit(3)", "raise SystemExit('bye')", "exit(4)", "x"},
	"Environment":  {"import os; print(sorted(os.environ.items()))", "os.environ['A'] = 'b'; print(os.popen('env | sort').read())", "print(sorted(os.environb.items()))"},
	"Streams":      {"import sys; print(sys.stdin, sys.stdout, sys.stderr, sys.stdout.line_buffering, sys.stdin is sys.__stdin__, sys.stdout.isatty())", "input()", "print('no newline', end='')", "import os; os.write(1, b'raw'); print('b', file=sys.stderr)"},
	"Fork":         {"import os\nx = 1\npid = os.fork()\nif pid == 0:\n    x = 2\nelse:\n    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))", "x", "pid = os.fork()\nif pid == 0: raise SystemExit(7)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))", "x"},
	"Processes":    {"import multiprocessing as m\ndef f(x): return x * x", "with m.get_context('fork').Pool(2) as p: print(p.map(f, range(4)))", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, text=True)"},
	"Threads":      {"import threading\ngo = threading.Event()\nt = threading.Thread(target=lambda: (go.wait(), print('late'))); t.start(); print(threading.main_thread() is threading.current_thread())", "go.set(); t.join(); print(threading.active_count())"},
	"Await":        {"import asyncio\nx = await asyncio.sleep(0, 5)", "x", "asyncio.run(asyncio.sleep(0, 6))"},
	"Interrupt":    {"x = 5", endless + "while True: pass", "x", endless + "import time; time.sleep(30)", "x", endless + "import subprocess; subprocess.run(['sleep', '30'])", "x", endless + "input_ = __import__('os').pipe(); __import__('os').read(input_[0], 1)", "x"},
	"Stubborn":     {"x = 5", endless + "import time\nwhile True:\n    try: time.sleep(30)\n    except BaseException: pass", "print('x' in globals())", "print(1)"},
	"Handlers":     {"import signal; print([(s, signal.getsignal(s)) for s in sorted(signal.valid_signals()) if not callable(signal.getsignal(s))], signal.pthread_sigmask(signal.SIG_BLOCK, []))", "got = []\nsignal.signal(signal.SIGUSR1, lambda *a: got.append(a[0]))\nimport os; os.kill(os.getpid(), signal.SIGUSR1)", "got"},
	"Killed":       {"x = 1", "import os; os.kill(os.getpid(), 15)", "print('x' in globals())", "import os; os._exit(3)", "print(2)"},
	"Channel":      {"import os; os.close(3)", "print(1)"},
	"Crash":        {"import os; os.abort()", "print(1)"},
	"Exec":         {"import os; os.execv('/bin/echo', ['echo', 'x'])", "print(1)"},
	"Files":        {"open('out.txt', 'w').write('kept')", "import os; print(os.listdir('.'), os.getcwd(), os.stat('out.txt').st_uid, os.umask(0))"},
	"Shadow":       {"for n in 'json', 'traceback', '_socket', 'socket', 'asyncio': _ = open(n + '.py', 'w').write('x = 5')", "import json, _socket, socket, traceback; print(json.x, _socket.x, socket.x, traceback.x)", "undefined"},
	"Imports":      {"import ctypes, socket, struct, re, ssl, sqlite3, random, decimal\nprint(ctypes.CDLL(None).getpid() > 1, re.sub('a','b','aa'))\na, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"},
	"Site":         {"import sys; print('site' in sys.modules)\ntry:\n    import nothing_of_that_name\nexcept ImportError as e: print(e)", "print(sys.path, 'site' in sys.modules)", "import os; os.mkdir('d'); open('d/mine.py', 'w').write('x = 7'); os.chdir('d')", "import mine; mine.x"},
	"Sandbox":      {"import sandbox; print(sandbox.policy, sorted(sandbox.__all__))", "sandbox.display({'a': 1}); sandbox.bridge['k'] = [1]", "dict(sandbox.bridge)"},
	"Source":       {"class A:\n    x = 1\ndef f():\n    return 1  # here", "import inspect; print(inspect.getsource(f) + inspect.getsource(A))", "%%writefile f.txt\nsome text", "!cat f.txt"},
	"Limits":       {"import resource; print([resource.getrlimit(i) for i in range(16)])", "import sys; print(sys.getrecursionlimit())\ndef f(n): return n and f(n - 1)\nf(900)"},
	"Descriptors":  {"import os; print(sorted(os.listdir('/proc/self/fd')))", "print(open('/proc/self/cmdline').read().split('\\0')[:3], open('/proc/self/comm').read())"},
	"Collector":    {"import gc; print(gc.isenabled(), gc.get_threshold(), gc.garbage, gc.callbacks)", "class C:\n    def __del__(self): print('gone')\nc = C(); c.c = c; del c; gc.collect() > 0"},
	"Walls":        {"import os, socket\nfor f in (lambda: open('/etc/x','w'), lambda: os.setuid(0), lambda: socket.socket(socket.AF_VSOCK), lambda: open('/proc/1/environ'), lambda: os.mkdir('/run/program/x'), lambda: open('/proc/self/oom_score_adj','w').write('1')):\n    try: f(); print('done')\n    except Exception as e: print(type(e).__name__, e)"},
	"Tampered":     {"import builtins\nfor n in ('exec', 'compile', 'len', 'type', 'isinstance', 'print', 'open'): setattr(builtins, n, None)", "4"},
	"Matplotlib":   {"import os; print(os.environ['MPLBACKEND'])"},
	"ManyCells":    {"x = 0", "x += 1", "x += 1", "x += 1", "x"},
	"LargeOutput":  {"print('x' * 3000000)", "1"},
	"ClosedOutput": {"import sys; sys.stdout.close(); sys.stdin.close()", "4"},
}

// TestForkedSessionIsWhatACallerSees has the same cells run by a backend that forks
// and by one that cannot.
func TestForkedSessionIsWhatACallerSees(t *testing.T) {
	var forking backend.Backend
	const tasks = 100 * 160 // for all sessions, whatever this machine has
	e := openReal(t, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		forking, c.MaxSessions = process.New(process.Config{MaxTasks: 2 * tasks}), 100
		c.Backends = []backend.Backend{forking}
	})
	needs(t, e, sandboxmcp.Python)
	plain := openReal(t, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends, c.MaxSessions = []backend.Backend{process.New(process.Config{NoPool: true, MaxTasks: 2 * tasks})}, 100
	})
	which := "import os; os.getpid()" // between init and a fork there was another process
	for range 10 {
		execute(t, e, in(create(t, e, sandboxmcp.SessionSpec{}), which))
	}
	testkit.Need(t, "zygote", forking.(backend.Pooler).Pool()["zygotes"] == 1, "nothing is forked here")
	for name, cells := range forkCells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			executed, forked := create(t, plain, sandboxmcp.SessionSpec{}), create(t, e, sandboxmcp.SessionSpec{})
			for n, code := range append([]string{which}, cells...) {
				a, b := cell(t, plain, executed, code), cell(t, e, forked, code)
				if n == 0 {
					if a.Results[0]["text/plain"] != "2" || b.Results[0]["text/plain"] != "3" {
						t.Fatalf("process numbers: got %v and %v, want 2 executed and 3 forked", a.Results, b.Results)
					}
					continue
				}
				if diff := cmp.Diff(strings.Split(seen(a), "\n"), strings.Split(seen(b), "\n")); diff != "" || a.StateLost != b.StateLost {
					t.Errorf("%s\na fork is another than an executed interpreter (-executed +forked; lost %v, %v):\n%s", code, a.StateLost, b.StateLost, diff)
				}
			}
		})
	}
}

func cell(t *testing.T, e *engine.Engine, id sandboxmcp.SessionID, code string) sandboxmcp.Result {
	t.Helper()
	r := in(id, code)
	if r.Display = sandboxmcp.DisplayResults; strings.HasPrefix(code, endless) {
		r.Limits.TimeoutSeconds = 0.5
	}
	return execute(t, e, r)
}

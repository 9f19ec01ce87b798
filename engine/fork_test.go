package engine_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// forkPrograms are run by execve and by a fork: what a caller sees is the same.
var forkPrograms = map[string]string{
	"Print":         "print('a', 1.5, [2])",
	"Value":         "40 + 2",
	"Exit":          "import sys; sys.exit(7)",
	"ExitText":      "raise SystemExit('bye')",
	"Exception":     "def f():\n    return 1/0\nf()",
	"Nested":        "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('x') from e",
	"Syntax":        "print(1)\nprint(2",
	"SyntaxWarning": "x = 1\nx is 1\nprint(x)",
	"Unprintable":   "class E(Exception):\n    def __str__(self): raise 1\nraise E()",
	"Arguments":     "import sys; print(sys.argv, sys.orig_argv, sys.path[0], sys.executable, sys.flags, sys.warnoptions)",
	"Main":          "print(sorted(globals()), __name__, __file__, __spec__, __loader__.path, __annotations__)",
	"Modules":       "import sys; print(sorted(sys.modules))",
	"Path":          "import sys; print(sys.path, len(sys.path_hooks), sys.meta_path[1:], sys.dont_write_bytecode)",
	"Environment":   "import os; print(sorted(os.environ.items())); os.environ['A']='b'; print(os.popen('env | sort').read())",
	"Input":         "import sys; print(repr(sys.stdin.read()), sys.stdin, sys.stdin.seekable(), sys.stdin.isatty())",
	"Streams":       "import sys; print(sys.stdout, sys.stderr, sys.stdout.line_buffering, sys.stdout.buffer.raw, sys.stdout.seekable(), sys.stderr.line_buffering, file=sys.stderr)",
	"AtExit":        "import atexit; atexit.register(print, 'late'); print('early', end='')",
	"Destructor":    "class C:\n    def __del__(self, p=print): p('gone')\nc = C()",
	"Destructors":   "import sys\nclass A:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('del', self.n, helper())\ndef helper(): return sys.flags.no_site\na = A('global')\nb = A('cycle'); b.b = b\nA.c = A('of the class')\ndef f(x=A('of a function')): pass",
	"OpenFile":      "f = open('f.txt', 'w'); f.write('kept')\ndef g(): return f\nimport tempfile; t = tempfile.TemporaryDirectory(); print('end')",
	"OwnModule":     "open('mine.py', 'w').write('class A:\\n    def __del__(self): print(\"of a module\")\\na = A()\\nf = open(\"g.txt\", \"w\"); f.write(\"kept\")\\n')\nimport mine; print(mine.a is not None)",
	"AtExitUses":    "import atexit\nclass A:\n    def __del__(self): print('del')\na = A()\ndef late(): print('late', a is not None, len(globals()) > 5)\natexit.register(late); None",
	"DaemonThread":  "import threading, time\nx = [1]\nclass A:\n    def __del__(self): print('del')\na = A()\ndef f():\n    while True: x.append(1); time.sleep(.0001)\nthreading.Thread(target=f, daemon=True).start(); time.sleep(.02); print('end')",
	"ExitInAtExit":  "import atexit, sys\natexit.register(sys.exit, 5)\nsys.exit(3)",
	"ExitCodes":     "raise SystemExit(-1)",
	"ExitLarge":     "raise SystemExit(2**70)",
	"ExitBool":      "raise SystemExit(True)",
	"ExitReplaced":  "import os, posix\nposix._exit = os._exit = lambda code: print('replaced', code)\nraise SystemExit(3)",
	"ExitNone":      "raise SystemExit(None)",
	"RaisedInDel":   "class A:\n    def __del__(self): raise KeyError\na = A(); del a; print(1)",
	"LastTraceback": "import sys, atexit\natexit.register(lambda: print(sys.last_value))\n1/0",
	"ForkExits":     "import os, sys\nif os.fork() == 0:\n    print('child'); sys.exit(4)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
	"Thread":        "import threading\ngo = threading.Event()\ndef f():\n    go.wait(); print('thread')\nthreading.Thread(target=f).start(); print(threading.main_thread().name, threading.active_count()); go.set()",
	"Signal":        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
	"Interrupt":     "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)",
	"Handlers":      "import signal; print([(s, signal.getsignal(s)) for s in sorted(signal.valid_signals())], signal.pthread_sigmask(signal.SIG_BLOCK, []))",
	"Abort":         "import os; os.abort()",
	"Parent":        "import os; print(os.getppid(), os.getpgrp() == os.getpid() == os.getsid(0), os.getcwd(), os.umask(0))",
	"Child":         "import os\nif os.fork() == 0:\n    print('child'); raise SystemExit(3)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
	"Subprocess":    "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, text=True)); print(subprocess.run(['sh','-c','echo x; exit 4'], capture_output=True, text=True))",
	"Multiprocess":  "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, range(4)))",
	"Again":         "import os, sys\nprint(sys.argv, sys.orig_argv, flush=True)\nif 'AGAIN' not in os.environ:\n    os.environ['AGAIN'] = ''\n    os.execv(sys.executable, sys.orig_argv)",
	"AgainWithFile": "import os, subprocess, sys\nif 'AGAIN' in os.environ:\n    print('again', os.read(4, 1))\nelse:\n    r, w = os.pipe()\n    os.dup2(r, 4)\n    os.write(w, b'ab')\n    print(subprocess.run(sys.orig_argv, env={**os.environ, 'AGAIN': ''}, pass_fds=[4]).returncode)",
	"Imports":       "import ctypes, socket, struct, json, re, asyncio, ssl, sqlite3, random, decimal\nprint(ctypes.sizeof(ctypes.c_long), ctypes.CDLL(None).getpid() > 1, json.dumps([1]), re.sub('a','b','aa'))\na, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))",
	"Shadow":        "open('json.py','w').write('x = 5')\nimport json; print(json.x)",
	"ShadowOfOurs":  "open('_socket.py','w').write('x = 5')\nopen('socket.py','w').write('x = 6')\nimport _socket, socket; print(_socket.x, socket.x)",
	"Recursion":     "import sys; print(sys.getrecursionlimit())\ndef f(n): return n and f(n-1)\nprint(f(900))",
	"Limits":        "import resource; print([resource.getrlimit(i) for i in range(16)])",
	"Descriptors":   "import os; print(sorted(os.listdir('/proc/self/fd')))",
	"CommandLine":   "print(open('/proc/self/cmdline').read().split('\\0')[:3], open('/proc/self/comm').read())",
	"Kill":          "import os\ntry: os.kill(1, 9); print('no effect')\nexcept OSError as e: print(e.errno)",
	"Clock":         "import time; print(time.process_time() < 1, time.thread_time() < 1, time.perf_counter() > 0)",
	"Rseq":          "import ctypes, os\nb = ctypes.create_string_buffer(64)\nnr = 334 if os.uname().machine == 'x86_64' else 293\nprint(ctypes.CDLL(None, use_errno=True).syscall(nr, ctypes.c_void_p(ctypes.addressof(b) + 31 & ~31), 32, 0, 0x53053053), ctypes.get_errno())", // fails if the C library's is registered
	"Files":         "open('out.txt','w').write('kept'); import os; print(os.listdir('.'), os.stat('out.txt').st_uid)",
	"BigOutput":     "print('x' * 3000000)",
	"ClosedOutput":  "import sys; sys.stdout.close()",
	"NotFlushed":    "import os; os.write(1, b'a'); print('b', end=''); os.write(1, b'c')",
	"Random":        "import random, os, uuid; print(len({random.random(), random.random()}), len(os.urandom(4)))",
	"Walls":         "import os, socket\nfor f in (lambda: open('/etc/x','w'), lambda: os.setuid(0), lambda: socket.socket(socket.AF_VSOCK), lambda: open('/proc/1/environ'), lambda: os.mkdir('/run/program/x'), lambda: os.sethostname if False else open('/proc/self/oom_score_adj','w').write('1')):\n    try: f(); print('done')\n    except Exception as e: print(type(e).__name__, e)",
}

// TestForkIsWhatACallerSees runs the same programs behind a backend that forks
// and one that cannot.
func TestForkIsWhatACallerSees(t *testing.T) {
	var forking backend.Backend
	e := openReal(t, func(c *engine.Config) { forking = c.Backends[0] })
	needs(t, e, sandboxmcp.Python)
	plain := openReal(t, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends = []backend.Backend{process.New(process.Config{NoPool: true})}
	})
	zygotes := func() int { return forking.(backend.Pooler).Pool()["zygotes"] }
	for range 40 {
		execute(t, e, sandboxmcp.Request{Code: "import time; time.sleep(.05)", Language: "python"})
		if zygotes() > 0 {
			break
		}
	}
	testkit.Need(t, "zygote", zygotes() == 1, "nothing is forked here")
	which := sandboxmcp.Request{Code: "import os; print(os.getpid())", Language: "python"} // between init and a fork there was another
	if a, b := execute(t, plain, which).Stdout, execute(t, e, which).Stdout; a != "2\n" || b != "3\n" {
		t.Fatalf("process numbers: got %q and %q, want 2 executed and 3 forked", a, b)
	}
	for name, code := range forkPrograms {
		for _, display := range []sandboxmcp.Display{sandboxmcp.DisplayNone, sandboxmcp.DisplayResults} {
			t.Run(name+"/"+string(display), func(t *testing.T) {
				r := sandboxmcp.Request{Code: code, Language: "python", Display: display}
				want, got := seen(execute(t, plain, r)), seen(execute(t, e, r))
				if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("a fork is another than an executed program (-executed +forked):\n%s", diff)
				}
			})
		}
	}
	if zygotes() != 1 {
		t.Error("the zygote is gone: nothing was compared")
	}
}

var address = regexp.MustCompile(`0x[0-9a-f]+`)

// seen is what a caller sees of a result, but for what differs between two runs.
func seen(res sandboxmcp.Result) string {
	text := fmt.Sprintf("%s %v %d %q\n%s\n%s\n%v", res.Status, res.Success, res.ExitCode, res.Signal, res.Stdout, res.Stderr, res.Error)
	text = address.ReplaceAllString(text, "0x")
	for _, a := range res.Artifacts {
		text += fmt.Sprintf("\n%s %d %s", a.Name, a.SizeBytes, a.SHA256)
	}
	for _, r := range res.Results {
		text += fmt.Sprintf("\n%v", r)
	}
	return text
}

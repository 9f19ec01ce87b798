package jail

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// changesGroups prints how each way to change a process group ends: 0, or the error number. Then
// processes in groups of their own join another's.
const changesGroups = `
import os, threading

def ends(f, *a):
    try:
        f(*a)
    except OSError as e:
        return e.errno
    return 0

def child(f):
    pid = os.fork()
    if pid == 0:
        os._exit(f())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def waiting():
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(0)
    os.close(r)
    return pid, w

def parent():
    pid, w = waiting()
    got = ends(os.setpgid, 0, 0)
    os.close(w)
    os.waitpid(pid, 0)
    return got

def threaded():
    lock = threading.Lock()
    lock.acquire()
    t = threading.Thread(target=lock.acquire)
    t.start()
    got = ends(os.setpgid, 0, 0)
    lock.release()
    t.join()
    return got

def other():
    pid, w = waiting()
    got = ends(os.setpgid, pid, pid)
    os.close(w)
    os.waitpid(pid, 0)
    return got

print("own", child(lambda: ends(os.setpgid, 0, 0)), "named", child(lambda: ends(os.setpgid, os.getpid(), os.getpid())),
    "parent", child(parent), "threaded", child(threaded), "other", child(other), flush=True)
joined = 0
for n in range(300):
    if child(lambda: ends(os.setpgid, 0, 0) or ends(os.setpgid, 0, os.getppid())) == 0:
        joined += 1
print("joined", joined, flush=True)
`

// TestCrowdsKeepTheirGroups: in a sandbox with few tasks programs change process groups as they like. In one that
// may have many, a process changes only its own, with one thread and without children. The more tasks the sandbox
// may have, the less often programs join others' groups.
func TestCrowdsKeepTheirGroups(t *testing.T) {
	j := noticing(t)
	for name, c := range map[string]struct {
		tasks int
		want  string
	}{
		"Few":     {fewTasks, "own 0 named 0 parent 0 threaded 0 other 0\njoined 300\n"},
		"Many":    {fewTasks + 1, "own 0 named 0 parent 1 threaded 1 other 1\njoined 300\n"},
		"Most":    {1 << 14, "own 0 named 0 parent 1 threaded 1 other 1\njoined 64\n"},
		"NoLimit": {0, "own 0 named 0 parent 1 threaded 1 other 1\njoined 32\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := made(t, j)
			defer func() { _ = s.Close() }()
			if err := s.LimitCrowd(c.tasks); err != nil {
				t.Fatal(err)
			}
			if got := printed(t, s, changesGroups); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// printed returns what a Python program prints.
func printed(t *testing.T, s *Slot, code string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Start(Command{Argv: []string{systemPython(t), "-S", "-I", "-c", code}, Dir: "/", Files: []int{int(null.Fd()), int(w.Fd()), int(w.Fd())}})
	_, _ = null.Close(), w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	_, _ = io.Copy(&out, r)
	<-p.Done()
	return out.String()
}

// choosesSignals prints how PR_SET_PDEATHSIG ends in the first thread of a process, in another, and in a child,
// for a signal, for SIGKILL and for none, and how PR_SET_CHILD_SUBREAPER ends.
const choosesSignals = `
import ctypes, os, threading
prctl = ctypes.CDLL(None, use_errno=True).prctl

def ends(*a):
    return ctypes.get_errno() if prctl(*a) else 0

def choose():
    print(*(ends(1, sig, 0, 0, 0) for sig in (15, 18, 40, 9, 0)), flush=True)

choose()
t = threading.Thread(target=choose)
t.start()
t.join()
if os.fork() == 0:
    choose()
    os._exit(0)
os.wait()
print(ends(36, 1, 0, 0, 0))
`

// TestOnlyFirstThreadsChooseASignal: the kernel signals each thread of each child that has chosen a signal for the
// end of its parent, in one piece. So only one thread of a process may choose one other than SIGKILL. No process
// adopts the children of others.
func TestOnlyFirstThreadsChooseASignal(t *testing.T) {
	j := noticing(t)
	s := made(t, j)
	defer func() { _ = s.Close() }()
	want := "0 0 0 0 0\n22 22 22 0 0\n0 0 0 0 0\n22\n"
	if got := printed(t, s, choosesSignals); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// waitsForMany prints how calls end that wait for 63, 64 and 200 files: 0, or the error number. The limit of
// descriptors is 512 or less.
const waitsForMany = `
import ctypes, os, select
libc = ctypes.CDLL(None, use_errno=True)
r, w = os.pipe()

def polled(n):
    files = (ctypes.c_int * (2 * n))(*(x for _ in range(n) for x in (r, 1)))
    return ctypes.get_errno() if libc.poll(files, n, 0) < 0 else 0

def selected(n):
    at = os.dup2(r, n - 1)
    try:
        select.select([at], [], [], 0)
    except OSError as e:
        return e.errno
    return 0

print(polled(63), polled(64), polled(200), selected(63), selected(64), selected(200))
`

// TestCrowdsWaitForFewFiles: in a sandbox that may have many tasks no call waits for many files.
func TestCrowdsWaitForFewFiles(t *testing.T) {
	j := noticing(t)
	for tasks, want := range map[int]string{fewTasks: "0 0 0 0 0 0\n", fewTasks + 1: "0 22 22 0 22 22\n"} {
		s := made(t, j)
		if err := s.LimitCrowd(tasks); err != nil {
			t.Fatal(err)
		}
		if got := printed(t, s, waitsForMany); got != want {
			t.Errorf("with %d tasks: got %q, want %q", tasks, got, want)
		}
		_ = s.Close()
	}
}

// noticing opens a jail whose init decides on calls. It skips the test where the kernel has no such calls.
func noticing(t *testing.T) *Jail {
	t.Helper()
	cfg := testConfig(t)
	testkit.Need(t, "notices", cfg.Notices, "calls that wait cannot be killed before Linux 5.19")
	j, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

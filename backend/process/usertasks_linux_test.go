package process_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// strangerUser is the id of a user that has no processes, and strangerEnv is set in a test process of it.
const (
	strangerUser = 61_234
	strangerEnv  = "SANDBOXMCP_TEST_STRANGER"
)

// TestAProgramLeavesTasksToTheServer: a program that makes as many tasks as the kernel allows its
// user does not keep the server, which has the same user, from starting threads and processes. The
// server is a test process of a user without other processes.
func TestAProgramLeavesTasksToTheServer(t *testing.T) {
	asStranger(t, func() {
		t.Run("WithNamespaces", func(t *testing.T) { leavesTasks(t, func(*process.Config) {}) })
		t.Run("WithoutNamespaces", func(t *testing.T) { leavesTasks(t, process.WithoutNamespaces) })
	})
}

// TestAProgramLeavesSignalsToTheUser: signals that wait and timers of a sandbox count for the server's user.
// A program that makes as many as it can leaves some to others of the user.
func TestAProgramLeavesSignalsToTheUser(t *testing.T) {
	asStranger(t, func() {
		lower(t, unix.RLIMIT_SIGPENDING, 400)
		b := newBackend()(t)
		defer b.Close(t.Context())
		sb, err := b.Open(t.Context(), spec("greedy"))
		if err != nil {
			t.Fatal(err)
		}
		defer sb.Close(t.Context())
		untilUp(t, sb, `
import signal, time, os
signal.pthread_sigmask(signal.SIG_BLOCK, range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
import ctypes
libc = ctypes.CDLL(None)
n = 0
while n < 10_000 and libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) == 0:
    n += 1
print("up", n, flush=True)
time.sleep(600)
`)
		for i := range 50 {
			var id int32
			if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&id))); errno != 0 {
				t.Fatalf("timer %d of the user: got %v, want it made", i, errno)
			}
			defer func() { _, _, _ = unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(id), 0, 0) }()
		}
	})
}

// asStranger runs a test in a process of a user without other processes.
func asStranger(t *testing.T, test func()) {
	t.Helper()
	if os.Getenv(strangerEnv) != "" {
		test()
		return
	}
	testkit.Root(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // as in newBackend
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, strangerUser, strangerUser); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	c.Dir = "/"
	c.Env = append(os.Environ(), strangerEnv+"=1", "TMPDIR="+dir, "HOME="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: strangerUser, Gid: strangerUser}}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("got %v, want the test of a user without other processes to pass:\n%s", err, out)
	}
}

func leavesTasks(t *testing.T, change func(*process.Config)) {
	const few = 200
	lower(t, unix.RLIMIT_NPROC, few)
	b := newBackend(change)(t)
	defer b.Close(t.Context())
	if most := b.(backend.Tasker).MaxTasks(); most != 50 {
		t.Errorf("MaxTasks is %d, want 50, a quarter of the user's", most)
	}
	sp := spec("greedy")
	sp.MemoryBytes, sp.MaxTasks = 512<<20, few
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context())
	untilUp(t, sb, `
import os, time
refused = 0
while refused < 20:
    try:
        if os.fork() == 0:
            time.sleep(600)
    except BlockingIOError:
        refused += 1
print("up", flush=True)
while True:
    try:
        if os.fork() == 0:
            time.sleep(600)
    except BlockingIOError:
        time.sleep(0.001)
`)
	for i := range 20 {
		c := exec.Command("sleep", "600")
		if err := c.Start(); err != nil {
			t.Fatalf("process %d of the server: got %v, want it started", i, err)
		}
		defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	}
}

// lower sets a limit of this process for the time of a test.
func lower(t *testing.T, which int, to uint64) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(which, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(which, &unix.Rlimit{Cur: to, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(which, &before); err != nil {
			t.Error(err)
		}
	})
}

// untilUp starts a Python program and waits until it has said "up".
func untilUp(t *testing.T, sb backend.Sandbox, program string) {
	t.Helper()
	up := make(chan struct{}, 8)
	_, err := sb.Start(t.Context(), backend.Process{
		Argv: []string{python(), "-S", "-I", backend.ProgramDir + "/main.py"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: said(up),
		Program: []backend.ProgramFile{{Name: "main.py", Data: []byte(program)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	end := time.NewTimer(time.Minute)
	defer end.Stop()
	select {
	case <-up:
	case <-end.C:
		t.Fatal("the program did not get to its limit within a minute")
	}
}

package host

import (
	"errors"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestAFileDoesNotForbidTracing: the file system of a program can refuse its execution with the error by which the kernel forbids tracing. The server does not execute
// the program again without its walls.
func TestAFileDoesNotForbidTracing(t *testing.T) {
	testkit.Need(t, "tracing", !tracingForbidden(), "that tracing is permitted")
	calls := 0
	pid, held, err := startHeld(func(*syscall.ProcAttr) (int, error) {
		calls++
		return 0, syscall.EPERM
	}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}})
	if calls != 1 || held || !errors.Is(err, syscall.EPERM) {
		t.Errorf("got the process %d, %t, %v after %d calls, want EPERM after one", pid, held, err, calls)
	}
}

package jail_test

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// TestForkExecFindsTheProgram: also if the program's descriptor has a number to which
// syscall.ForkExec copies another one.
func TestForkExecFindsTheProgram(t *testing.T) {
	program, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	at := func(f *os.File, number int) int {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, number)
		if err != nil || fd != number {
			t.Fatalf("got descriptor %d, %v, want %d", fd, err, number)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	file := uintptr(at(null, 300))
	exe := at(program, 301)
	pid, err := jail.ForkExec(exe, []string{"true"}, &syscall.ProcAttr{Files: []uintptr{file, file, file, file}})
	if err != nil {
		t.Fatalf("got %v, want the program started", err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil || !ws.Exited() || ws.ExitStatus() != 0 {
		t.Errorf("got status %v, %v, want 0", ws, err)
	}
}

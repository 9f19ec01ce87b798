package jail

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestOpensWhereMemoryFilesAreNotExecutable: a jail can be opened where an operator has set
// vm.memfd_noexec to 1. The setting belongs to a pid namespace, so the test runs once more in one
// of its own.
func TestOpensWhereMemoryFilesAreNotExecutable(t *testing.T) {
	testkit.Root(t)
	const inside, sysctl = "SANDBOXMCP_TEST_OWN_PIDS", "/proc/sys/vm/memfd_noexec"
	if _, err := os.Stat(sysctl); err != nil {
		t.Skip("the kernel is older than Linux 6.3")
	}
	if os.Getenv(inside) == "" {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), inside+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("in a pid namespace of its own: got %v, want success\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sysctl, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	_ = made(t, j).Close()
}

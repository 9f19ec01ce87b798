package testkit

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// mountsOwn is set in the process that OwnMounts starts.
const mountsOwn = "SANDBOXMCP_TEST_OWN_MOUNTS"

// OwnMounts reports whether the test runs in a process with mounts of its own, which it may change. If not, it runs the test in
// such a process, as root of a user namespace, and the caller returns.
func OwnMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(mountsOwn) != "" {
		return true
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), mountsOwn+"=yes")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := c.CombinedOutput()
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skip("no user namespaces")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

package testkit

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// apart is set in the process that Apart starts.
const apart = "SANDBOXMCP_TEST_APART"

// OwnMounts reports whether the test runs in a process with mounts of its own, which it may change; see Apart.
func OwnMounts(t *testing.T) bool {
	t.Helper()
	return Apart(t, 0)
}

// Apart reports whether the test runs in a process with a user namespace, a mount namespace and the further ones of flags. If not,
// it runs the test in such a process, as root of the user namespace, and the caller returns.
func Apart(t *testing.T, flags uintptr) bool {
	t.Helper()
	if os.Getenv(apart) != "" {
		return true
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), apart+"=yes")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER | flags,
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

package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// hiddenOwner is the environment variable by which a test names a living owner to its child.
const hiddenOwner = "TEST_HIDDEN_OWNER"

// TestServersOfOtherUsersLive: where /proc hides the processes of other users, a server of another user is not taken for a
// dead one.
func TestServersOfOtherUsersLive(t *testing.T) {
	if owner := os.Getenv(hiddenOwner); owner != "" {
		seesNoOther(t, owner)
		return
	}
	testkit.Root(t)
	owner, err := self()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersOfOtherUsersLive$", "-test.v")
	cmd.Env = append(os.Environ(), hiddenOwner+"="+owner)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// seesNoOther is the child, as another user with a /proc of its own that hides its parent.
func seesNoOther(t *testing.T, owner string) {
	for _, err := range []error{syscall.Mount("proc", "/proc", "proc", 0, "hidepid=2"), syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	parent := fmt.Sprint(os.Getppid())
	if _, err := os.Stat("/proc/" + parent); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the parent is not hidden: %v", err)
	}
	if dead(owner, true) || unused(parent) {
		t.Error("a living server that /proc hides is taken for a dead one")
	}
	if !unused("4194305") { // above the largest pid that Linux gives
		t.Error("a process id that nothing has is taken for that of a living process")
	}
}

// TestServersOfOtherClocksLive: in another time namespace, a process seems to have been started at another time.
func TestServersOfOtherClocksLive(t *testing.T) {
	if owner := os.Getenv(hiddenOwner); owner != "" {
		if dead(owner, true) {
			t.Error("a living server is taken for a dead one")
		}
		return
	}
	testkit.Root(t)
	if err := exec.CommandContext(t.Context(), "unshare", "-T", "-f", "--boottime", "100000", "true").Run(); err != nil {
		t.Skipf("there are no time namespaces: %v", err)
	}
	owner, err := self()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-T", "-f", "--boottime", "100000", os.Args[0], "-test.run=^TestServersOfOtherClocksLive$")
	cmd.Env = append(os.Environ(), hiddenOwner+"="+owner)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

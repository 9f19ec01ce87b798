package host_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestLinksIntoTheMountsOfOthersAreNotFollowed: a link to /proc/PID/root of a user's process leads into the mounts of that process, where a file
// system of the user may never answer. Here the server would find its own state directory behind the link, and say so.
func TestLinksIntoTheMountsOfOthersAreNotFollowed(t *testing.T) {
	testkit.Root(t)
	b := open(t)
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(other.Process.Kill(), other.Wait()) }()
	into := "/proc/" + strconv.Itoa(other.Process.Pid) + "/root" + b.state
	link := filepath.Join(b.root, "link")
	if err := os.Symlink(into, link); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(link + "/sandboxmcp.db"); err != nil {
		t.Skipf("the kernel does not let the server's user look there: %v", err)
	}
	if out, err := b.exec("cat " + link + "/x"); err != nil || out.ExitCode == 0 {
		t.Errorf("got %+v, %v, want that cat is executed, and may not follow the link", out, err)
	}
	const isLink = "it is a symbolic link, or leads through one"
	for what, err := range map[string]error{
		"read":  fails(b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: link + "/x"}, noMasks{})),
		"list":  fails(b.Files.List(t.Context(), caller, link+"/x", noMasks{})),
		"write": fails(b.Files.Write(t.Context(), caller, sandboxmcp.HostWrite{Path: link + "/x"}, noMasks{})),
	} {
		if want := sandboxmcp.Quote(link+"/x") + " is refused: " + isLink; err == nil || sandboxmcp.AsError(err).Message != want {
			t.Errorf("%s: got %v, want %s", what, err, want)
		}
	}
}

// fails returns the error of a call.
func fails(_ any, err error) error { return err }

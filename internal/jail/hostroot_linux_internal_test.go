package jail

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// elsewhere runs the test once more in new namespaces, in which its own user is the given one, and reports
// whether it did. The second time it reports false.
func elsewhere(t *testing.T, flags uintptr, id int) bool {
	t.Helper()
	const inside = "SANDBOXMCP_TEST_ELSEWHERE"
	if os.Getenv(inside) != "" {
		return false
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), inside+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getegid(), Size: 1}},
	}
	if os.Geteuid() == 0 {
		again.Env = append(again.Env, "SANDBOXMCP_TEST_WAS_ROOT=1")
	}
	out, err := again.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skip("user namespaces cannot be made here")
	}
	if err != nil {
		t.Errorf("as user %d of other namespaces: got %v, want success\n%s", id, err, out)
	}
	return true
}

// TestRootOfTheHostIsFoundUnderAnotherID: a user namespace that shows the host's root as another user does not
// make its programs ordinary ones.
func TestRootOfTheHostIsFoundUnderAnotherID(t *testing.T) { hostRootAs(t, 1000, "1000") }

// TestRootOfTheHostIsFoundUnderTheOverflowID: the same, where its id is that of users who are not mapped.
func TestRootOfTheHostIsFoundUnderTheOverflowID(t *testing.T) { hostRootAs(t, 65534, "65534") }

func hostRootAs(t *testing.T, id int, asRoot string) {
	t.Helper()
	if elsewhere(t, 0, id) {
		return
	}
	root, err := findHostRoot()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("SANDBOXMCP_TEST_WAS_ROOT") == "" {
		asRoot = "another"
	}
	own, other := []string{"1000", "1000", "1000", "1000"}, []string{"7", "7", "7", "7"}
	if id == 65534 {
		own = []string{"65534", "65534", "65534", "65534"}
	}
	if got, want := root.among(own, other), asRoot == own[0]; got != want {
		t.Errorf("the host's root is %q; user %s is it: got %t, want %t", root.uid, own[0], got, want)
	}
	if root.among(other, other) {
		t.Errorf("the host's root is %q; user 7 is it: got true, want false", root.uid)
	}
}

func TestIDsOfTheHostsRoot(t *testing.T) {
	root, none := hostRoot{"1000", "5"}, hostRoot{}
	for _, c := range []struct {
		root       hostRoot
		uids, gids string
		want       bool
	}{
		{root, "7 7 7 7", "7 7 7 7", false},
		{root, "7 7 1000 7", "7 7 7 7", true},
		{root, "7 7 7 7", "7 5 7 7", true},
		{root, "5 5 5 5", "1000 1000 1000 1000", false},
		{none, "0 0 0 0", "0 0 0 0", false},
		{hostRoot{"0", "0"}, "7 7 7 7", "7 7 7 0", true},
	} {
		if got := c.root.among(strings.Fields(c.uids), strings.Fields(c.gids)); got != c.want {
			t.Errorf("root %v among users %s and groups %s: got %t, want %t", c.root, c.uids, c.gids, got, c.want)
		}
	}
	for text, want := range map[string]bool{"": false, "0 100000 65536\n": true, "0 1000 1\n1 100000 65533\n": false, "0 1000 1\n65534 5 1\n": true, "0 0": false, "a b c": false} {
		if got := mapsID(text, overflowID); got != want {
			t.Errorf("map %q has %s: got %t, want %t", text, overflowID, got, want)
		}
	}
	for err, want := range map[error]bool{nil: true, unix.EROFS: true, unix.ENOENT: true, unix.EACCES: false, unix.EPERM: false} {
		if got := mayBeHostRoot(err); got != want {
			t.Errorf("an attempt to write %s fails with %v: may be root: got %t, want %t", rootSetting, err, got, want)
		}
	}
}

// TestProcOfAnotherPidNamespaceIsRefused: walls are not read from processes that only have the same numbers.
func TestProcOfAnotherPidNamespaceIsRefused(t *testing.T) {
	if elsewhere(t, unix.CLONE_NEWPID, 1000) {
		return
	}
	if _, err := Open(testConfig(t)); !errors.Is(err, errForeignProc) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("where /proc is that of another pid namespace: got %v, want %v", err, errForeignProc)
	}
}

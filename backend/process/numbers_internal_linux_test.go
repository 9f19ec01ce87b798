package process

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestAContainerHasTheNumbersOfItsHost: its own limit, which it has since Linux 6.14, may be far above the host's.
func TestAContainerHasTheNumbersOfItsHost(t *testing.T) {
	for name, c := range map[string]struct {
		most      int
		contained bool
		want      int
	}{
		"Host":        {32768, false, 32768},
		"RaisedHost":  {4194304, false, 4194304},
		"Container":   {4194304, true, 64 * 1024},
		"OwnLimit":    {5000, true, 5000},
		"NotReadable": {0, true, 0},
	} {
		if got := numbersIn(c.most, c.contained, 64); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	for release, want := range map[string]bool{"6.13.9-generic": false, "6.14.0": true, "6.18.44-fc": true, "7.0.0": true, "5.15.0": false, "unknown": false} {
		if got := limitsNamespaces(release); got != want {
			t.Errorf("%s: got %t, want %t", release, got, want)
		}
	}
}

// TestNumbersInAPidNamespace are not those that the namespace shows.
func TestNumbersInAPidNamespace(t *testing.T) {
	if os.Getpid() == 1 {
		if got := processNumbers(); got >= mostNumbers {
			t.Errorf("got %d process numbers, want those of a host", got)
		}
		return
	}
	testkit.Need(t, "pid namespaces with a limit", limitsNamespaces(kernelRelease()), "Linux 6.14")
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
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
}

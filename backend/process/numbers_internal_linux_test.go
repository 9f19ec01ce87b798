package process

import (
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
	testkit.Need(t, "pid namespaces with a limit", limitsNamespaces(kernelRelease()), "Linux 6.14")
	if !testkit.Apart(t, syscall.CLONE_NEWPID) {
		return
	}
	if got := processNumbers(); got >= mostNumbers {
		t.Errorf("got %d process numbers, want those of a host", got)
	}
}

package jail

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLaunchFails: if the kernel refuses the id maps, the error says so, and no process is left.
func TestLaunchFails(t *testing.T) {
	before := len(Children("self"))
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(ours)
	pid, pidfd, err := launch{namespaces: unix.CLONE_NEWUSER}.start(ours, theirs) // maps of no ids
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("got process %d, descriptor %d, %v, want %v", pid, pidfd, err, unix.EINVAL)
	}
	if got := len(Children("self")); got != before {
		t.Errorf("got %d children, want %d", got, before)
	}
}

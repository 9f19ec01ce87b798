package jail

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSandboxesHaveTheUsualSlack: a thread that may sleep longer does not pass that on to the processes that it starts.
func TestSandboxesHaveTheUsualSlack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1_000_000, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	UsualSlack()
	if got, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); got != 50_000 || err != nil {
		t.Errorf("got %d ns, %v; want 50000", got, err)
	}
}

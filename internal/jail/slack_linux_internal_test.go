package jail

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSandboxesKeepTheUsualSlack: a thread that may sleep longer does not pass that on to the processes that it starts.
func TestSandboxesKeepTheUsualSlack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's server lets a thread sleep longer")
	}
	type slack struct{ usual, set, got int }
	measured := make(chan slack)
	var look func()
	look = func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			other := make(chan struct{})
			go func() { defer close(other); look() }()
			<-other // on another thread, while this goroutine holds the main one
			runtime.UnlockOSThread()
			return
		}
		var s slack
		s.usual, _ = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 500_000, 0, 0, 0)
		s.set, _ = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		usualSlack()
		s.got, _ = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		measured <- s
	}
	go look()
	if s := <-measured; s.usual == s.set || s.got != s.usual {
		t.Errorf("got %d ns after %d, want %d", s.got, s.set, s.usual)
	}
}

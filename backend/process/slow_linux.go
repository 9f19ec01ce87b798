package process

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// slowCalls finds what the kernel takes for calls on a pipe that a program has made slow.
// The first slow call costs nothing. From then on the processor time of each is measured,
// because a call is also slow while its thread waits for a processor. The zero value is
// ready. Its methods may be called concurrently.
type slowCalls struct{ found atomic.Bool }

// do makes a call and returns its cost beyond the usual.
func (s *slowCalls) do(call func()) (cost time.Duration) {
	measured := s.found.Load()
	var used time.Duration
	if measured {
		runtime.LockOSThread() // the clock is the thread's
		defer runtime.UnlockOSThread()
		used = threadTime()
	}
	began := time.Now()
	call()
	if backend.CostOfCall(time.Since(began)) == 0 { // then its processor time costs nothing either
		return 0
	}
	if !measured {
		s.found.Store(true)
		return 0
	}
	return backend.CostOfCall(threadTime() - used)
}

// threadTime returns the processor time that the thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

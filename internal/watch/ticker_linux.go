package watch

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ticker wakes one goroutine at intervals. It is a kernel timer on the runtime's poller. A Go timer
// would also wake the runtime's monitor thread, which then uses three times the CPU time of a look
// at idle sandboxes.
type ticker struct {
	every time.Duration
	file  *os.File // nil: the kernel refused a timer, so the ticker sleeps instead, also at rest
}

// newTicker returns a ticker at rest. The caller closes it.
func newTicker(every time.Duration) *ticker {
	t := &ticker{every: every}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return t
	}
	t.file = os.NewFile(uintptr(fd), "ticker")
	return t
}

// set makes the next tick come after the given time; 0: none comes. The kernel sets every timer
// whose values are in range, as these are.
func (t *ticker) set(next time.Duration) {
	if t.file == nil {
		return
	}
	raw, err := t.file.SyscallConn()
	if err != nil {
		return
	}
	at := unix.ItimerSpec{Interval: unix.NsecToTimespec(t.every.Nanoseconds()), Value: unix.NsecToTimespec(next.Nanoseconds())}
	_ = raw.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, &at, nil) })
}

// start, soon and rest set when wait returns next: after an interval, at once, or not before start
// or soon is called. They may be called concurrently with wait. wait may return once more after
// rest.
func (t *ticker) start() { t.set(t.every) }
func (t *ticker) soon()  { t.set(1) }
func (t *ticker) rest()  { t.set(0) }

// wait waits for the next tick.
func (t *ticker) wait() {
	if t.file != nil {
		if raw, err := t.file.SyscallConn(); err == nil && raw.Read(ticked) == nil {
			return
		}
	}
	<-time.NewTimer(t.every).C
}

// ticked reports whether a timer has ticked, and consumes the ticks. It uses a raw system call,
// which returns at once and does not wake the monitor thread.
func ticked(fd uintptr) bool {
	var ticks [8]byte
	_, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&ticks)), unsafe.Sizeof(ticks))
	return errno != syscall.EAGAIN
}

func (t *ticker) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
}

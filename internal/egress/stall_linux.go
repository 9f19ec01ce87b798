package egress

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// giveUp has the kernel end a connection whose other side takes nothing of what
// was sent to it for so long: no deadline of a read ends a write that waits.
func giveUp(c net.Conn, after time.Duration) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // what has no such option has no window to be shut
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(after.Milliseconds(), 1)))
	})
}

// descriptors is how many this process may have.
func descriptors() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 1024
	}
	return int(min(r.Cur, 1<<20))
}

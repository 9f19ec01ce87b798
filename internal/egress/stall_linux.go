package egress

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// giveUp makes the kernel end a connection whose peer does not accept sent data for
// that long. A read deadline would not end a blocked write.
func giveUp(c net.Conn, after time.Duration) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // an error means that c is not TCP: such a peer cannot close its window
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(after.Milliseconds(), 1)))
	})
}

// descriptors returns how many descriptors this process may have.
func descriptors() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 1024
	}
	return int(min(r.Cur, 1<<20))
}

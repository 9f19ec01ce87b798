package store

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeout lets a connection fail if the other side does not confirm bytes within deadPeer.
func userTimeout(network, _ string, c syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadPeer.Milliseconds()))
	})
	if cerr != nil {
		return cerr
	}
	return err
}

package api

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
)

// private refuses a directory that other users can write to.
func private(dir *os.File) error {
	st, err := dir.Stat()
	if err != nil {
		return fmt.Errorf("look at socket directory: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || st.Mode().Perm()&0o022 != 0 || !trusted(sys.Uid) {
		return fmt.Errorf("socket directory %s can be written to by others: %w", dir.Name(), fs.ErrPermission)
	}
	return nil
}

// address returns the path of a socket through its directory's descriptor. The path of a
// socket is limited to 107 bytes, that of a state directory is not.
func address(dir *os.File, name string) string {
	return "/proc/self/fd/" + strconv.FormatUint(uint64(dir.Fd()), 10) + "/" + name
}

// peerUID asks the kernel for the user of the peer of a unix connection.
func peerUID(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("connection is no unix socket: %T", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("open connection: %w", err)
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("read peer: %w", err)
	}
	if credErr != nil {
		return 0, fmt.Errorf("read peer: %w", credErr)
	}
	return cred.Uid, nil
}

//go:build linux || darwin

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// owned reports whether the file belongs to the user that the process runs as.
func owned(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// writable fails if the process may not write to path or the file system is read-only.
// SQLite would open such a database and fail only at its first write.
func writable(path string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "write to", Path: path, Err: err}
	}
	return nil
}

// readOnly reports whether a directory is on a file system that this process sees as read-only.
func readOnly(dir string) bool {
	return errors.Is(unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK, unix.AT_EACCESS), unix.EROFS)
}

// canLease is whether the system has leases.
const canLease = true

// openLease opens the file or directory of a lease. If it does not exist, openLease makes a
// file. It never blocks, even if the path is a FIFO or a device.
func openLease(path string) (f *os.File, err error) {
	const how = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	if f, err = os.OpenFile(path, os.O_RDONLY|how, 0); errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|how, fileMode)
	}
	return f, err
}

// tryLock takes the lock of an open file, exclusive if alone is set, otherwise shared. It
// fails with [ErrLeased] if the lock is taken. The kernel frees the lock when the last copy
// of the descriptor is closed, at the latest when the process ends.
func tryLock(f *os.File, alone bool) error {
	how := unix.LOCK_SH | unix.LOCK_NB
	if alone {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLeased
		case err != nil:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		default:
			return nil
		}
	}
}

func freeSpace(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(st.Bsize)
	return uint64(st.Bavail) * block, uint64(st.Blocks) * block, nil //nolint:unconvert // likewise
}

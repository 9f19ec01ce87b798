//go:build unix

package app

import (
	"fmt"
	"os"
	"syscall"
)

// detached starts a process in its own session, so that the terminal's signals do not
// reach it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// tryLock locks a file until it is closed. It returns false if another process holds the
// lock.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// fileID identifies a file on this machine.
func fileID(f os.FileInfo) string {
	if st, ok := f.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(st.Dev, ":", st.Ino)
	}
	return ""
}

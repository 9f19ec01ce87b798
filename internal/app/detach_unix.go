//go:build unix

package app

import (
	"os"
	"syscall"
)

// detached makes a process that the terminal of its maker cannot end.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// tryLock locks a file until it is closed, if nobody else has done so.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

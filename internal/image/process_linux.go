package image

import (
	"os"
	"syscall"
)

// attributes returns those of mmdebstrap's process. Its group can be signalled. What root's
// mmdebstrap mounts is seen, and lives on, in its own mount namespace only.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		a.Unshareflags = syscall.CLONE_NEWNS
	}
	return a
}

// stop asks the process group of mmdebstrap to end. It removes its files first.
func stop(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

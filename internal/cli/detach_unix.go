//go:build unix

package cli

import "syscall"

// detached makes a process that the terminal of its maker cannot end.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

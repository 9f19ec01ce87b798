//go:build !linux

package image

import (
	"os"
	"syscall"
)

// There is no mmdebstrap on other systems.
func attributes() *syscall.SysProcAttr { return nil }

func stop(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

//go:build !unix

package cli

import (
	"os"
	"syscall"
)

func detached() *syscall.SysProcAttr { return nil }

func tryLock(*os.File) bool { return true }

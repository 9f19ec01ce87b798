//go:build !unix

package app

import (
	"os"
	"syscall"
)

func detached() *syscall.SysProcAttr { return nil }

func tryLock(*os.File) bool { return true }

func fileID(os.FileInfo) string { return "" }

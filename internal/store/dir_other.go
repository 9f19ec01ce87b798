//go:build !linux && !darwin

package store

import (
	"errors"
	"io/fs"
	"os"
)

func owned(fs.FileInfo) bool { return true }

func writable(string) error { return nil }

func readOnly(string) bool { return false }

var errNoLeases = errors.New("the state directory is not supported on this system")

const canLease = false

func openLease(string) (*os.File, error) { return nil, errNoLeases }

func tryLock(*os.File, bool) error { return errNoLeases }

func freeSpace(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }

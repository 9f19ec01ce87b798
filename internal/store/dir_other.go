//go:build !linux && !darwin

package store

import (
	"context"
	"errors"
	"io/fs"
)

func owned(fs.FileInfo) bool { return true }

func writable(string) error { return nil }

func lockFile(context.Context, string) (func() error, error) {
	return nil, errors.New("the state directory is not supported on this system")
}

func holdDir(string) (func() error, error) {
	return nil, errors.New("the state directory is not supported on this system")
}

func freeSpace(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }

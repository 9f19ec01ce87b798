// Package plainfile opens files that must be regular files, such as keys, settings and
// receipts. Another program could replace such a file by something else. A FIFO, a device,
// a socket or a directory is refused at once: no call waits for another process, and no
// device is opened.
package plainfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// ErrNotRegular means that a path does not name a regular file.
var ErrNotRegular = errors.New("it is not a regular file")

// TooLargeError means that a file is larger than the caller's limit.
type TooLargeError struct {
	Size  int64 // in bytes; 0: unknown
	Limit int64
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return "it is larger than " + strconv.FormatInt(e.Limit, 10) + " bytes"
}

// Open opens a file for reading. It follows links.
func Open(path string) (*os.File, error) { return open(path, os.O_RDONLY, 0) }

// Append opens a file for appending. If it does not exist, Append creates it with that
// mode.
func Append(path string, mode fs.FileMode) (*os.File, error) {
	return open(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, mode)
}

// Read reads a whole file. If it has more than limit bytes, the error is a
// [*TooLargeError].
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	tooLarge := &TooLargeError{Limit: limit}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		tooLarge.Size = info.Size()
		return nil, &fs.PathError{Op: "read", Path: path, Err: tooLarge}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: tooLarge}
	}
	return data, err
}

// open checks the path before it opens the file, because opening a device can have an
// effect. It checks the open file again, because the path may have changed.
func open(path string, flags int, mode fs.FileMode) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && flags&os.O_CREATE != 0:
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, mode) // does not block if the path was replaced by a FIFO
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directory is an open directory of a cgroup file system. Names are relative to it and may
// have a slash, for the files of a group.
type directory struct {
	file  *os.File
	path  string
	plain bool              // tests: an ordinary directory in place of the kernel's
	made  func(path string) // tests: fills new directories; may be nil
}

func openDirectory(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func openDirectoryAt(in *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(in.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (d directory) open(name string, flags int) (int, error) {
	if d.plain && flags != unix.O_RDONLY {
		flags |= unix.O_TRUNC // the kernel's files are replaced by each write
	}
	for {
		fd, err := unix.Openat(int(d.file.Fd()), name, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (d directory) fail(verb, name string, err error) error {
	return fmt.Errorf("%s %s: %w", verb, filepath.Join(d.path, name), err)
}

func (d directory) read(name string) (string, error) {
	fd, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return "", d.fail("read", name, err)
	}
	defer unix.Close(fd)
	return d.readAll(fd, name)
}

func (d directory) readAll(fd int, name string) (string, error) {
	var buf [4096]byte // no file that is read has more than a few hundred bytes
	n, err := unix.Pread(fd, buf[:], 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Pread(fd, buf[:], 0)
	}
	if err != nil {
		return "", d.fail("read", name, err)
	}
	return strings.TrimSpace(string(buf[:n])), nil
}

func (d directory) write(name, value string) error {
	fd, err := d.open(name, unix.O_WRONLY)
	if err != nil {
		return d.fail("write", name, err)
	}
	defer unix.Close(fd)
	return d.writeAll(fd, name, value)
}

func (d directory) writeAll(fd int, name, value string) error {
	_, err := unix.Write(fd, []byte(value))
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Write(fd, []byte(value))
	}
	if err != nil {
		return d.fail("write "+value+" to", name, err)
	}
	return nil
}

// set writes a value and reads it back. It fails if the kernel returns another value.
func (d directory) set(name, value string) error {
	fd, err := d.open(name, unix.O_RDWR)
	if err != nil {
		return d.fail("set", name, err)
	}
	defer unix.Close(fd)
	return d.setAll(fd, name, value)
}

func (d directory) setAll(fd int, name, value string) error {
	if err := d.writeAll(fd, name, value); err != nil {
		return err
	}
	got, err := d.readAll(fd, name)
	if err != nil {
		return err
	}
	if got != value {
		return fmt.Errorf("set %s: wrote %q, the kernel says %q", filepath.Join(d.path, name), value, got)
	}
	return nil
}

// number reads a whole number: the first word of a file or, if key is not empty, the word
// after key. It returns 0 if the file or key is missing or the word is not a number.
func (d directory) number(name, key string) int64 {
	text, err := d.read(name)
	if err != nil {
		return 0
	}
	return numberIn(text, key)
}

func numberIn(text, key string) int64 {
	words := strings.Fields(text)
	for i, w := range words {
		if key != "" {
			if w != key || i+1 == len(words) {
				continue
			}
			w = words[i+1]
		}
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return 0
}

func (d directory) has(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(int(d.file.Fd()), name, &st, 0) == nil
}

func (d directory) make(name string) error {
	if err := unix.Mkdirat(int(d.file.Fd()), name, 0o755); err != nil {
		return d.fail("make", name, err)
	}
	if d.made != nil {
		d.made(filepath.Join(d.path, name))
	}
	return nil
}

// remove removes a group's directory. It waits up to a second, because a group stays busy
// for a moment after its last process was killed.
func (d directory) remove(name string) error {
	if d.plain {
		return os.RemoveAll(filepath.Join(d.path, name))
	}
	const patience = time.Second
	wait, waited := time.Millisecond, time.Duration(0)
	for {
		err := unix.Unlinkat(int(d.file.Fd()), name, unix.AT_REMOVEDIR)
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EBUSY) || waited >= patience:
			return d.fail("remove", name, err)
		}
		<-time.NewTimer(wait).C
		waited += wait
		wait = min(2*wait, 50*time.Millisecond)
	}
}

// nanoseconds reads a file that has one number, 0 if it cannot be read. Raw calls do not
// wake the runtime's monitor thread, as others do in a process that rests. These take
// microseconds.
func (d directory) nanoseconds(name string) time.Duration {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return 0
	}
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, d.file.Fd(), uintptr(unsafe.Pointer(path)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	var buf [32]byte
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&buf)), unsafe.Sizeof(buf))
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(numberIn(string(buf[:n]), ""))
}

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// files is a working directory seen through a descriptor. The kernel itself
// refuses every name that would leave it.
type files struct{ dir int }

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func (f files) openat(name string, flags int) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK | unix.O_NOFOLLOW, Resolve: beneath}
	for {
		fd, err := unix.Openat2(f.dir, name, how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue // a rename raced with the look-up
		}
		return fd, err
	}
}

// Open opens a regular file for reading.
func (f files) Open(name string) (backend.File, error) {
	fd, err := f.openat(name, unix.O_RDONLY)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENXIO): // a link, a way out, a socket
		err = fmt.Errorf("%w: %w", fs.ErrInvalid, err)
		fallthrough
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return &file{os.NewFile(uintptr(fd), name)}, nil
}

// List returns entries of a directory.
func (f files) List(name string, limit int) ([]backend.FileInfo, bool, error) {
	fd, err := f.openat(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, false, &fs.PathError{Op: "list", Path: name, Err: err}
	}
	d := os.NewFile(uintptr(fd), name)
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(limit + 1)
	more := len(names) > limit
	if more {
		names = names[:limit]
	}
	if err != nil && len(names) == 0 {
		return nil, false, nil // io.EOF: empty
	}
	entries := make([]backend.FileInfo, 0, len(names))
	for _, n := range names {
		var st unix.Stat_t
		if unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			entries = append(entries, describe(n, &st))
		}
	}
	return entries, more, nil
}

type file struct{ *os.File }

func (f *file) Stat() (backend.FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return backend.FileInfo{}, err
	}
	return describe(f.Name(), &st), nil
}

func describe(name string, st *unix.Stat_t) backend.FileInfo {
	mode := fs.FileMode(st.Mode & 0o777)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	default:
		mode |= fs.ModeIrregular
	}
	return backend.FileInfo{
		Name: name, Mode: mode, Size: st.Size, Blocks: st.Blocks, Links: uint64(st.Nlink), //nolint:unconvert // differs by architecture
		ModTime: time.Unix(st.Mtim.Unix()),
	}
}

// putProgram writes the files that a program needs in order to start into dir,
// where the program itself cannot write. uid is whom the directory belongs to:
// root has to write as that user, because the file system knows no other.
func putProgram(dir, uid int, program []backend.ProgramFile) error {
	if len(program) == 0 {
		return nil
	}
	if os.Geteuid() == 0 && uid != 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := errors.Join(unix.Setfsgid(uid), unix.Setfsuid(uid)); err != nil {
			return err
		}
		defer func() { _ = errors.Join(unix.Setfsuid(0), unix.Setfsgid(0)) }()
	}
	for _, p := range program {
		if err := putFile(dir, p); err != nil {
			return &fs.PathError{Op: "write", Path: backend.ProgramDir + "/" + p.Name, Err: err}
		}
	}
	return nil
}

func putFile(dir int, p backend.ProgramFile) error {
	how := &unix.OpenHow{Flags: unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC, Mode: 0o644, Resolve: beneath}
	fd, err := unix.Openat2(dir, p.Name, how)
	if errors.Is(err, unix.EEXIST) { // of an earlier start in the same sandbox
		if err = unix.Unlinkat(dir, p.Name, 0); err == nil {
			fd, err = unix.Openat2(dir, p.Name, how)
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for data := p.Data; len(data) > 0; {
		n, err := unix.Write(fd, data)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

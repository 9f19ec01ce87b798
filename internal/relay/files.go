package relay

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// files is the working directory of a sandbox. The container's kernel resolves every name below the
// directory and follows no links.
type files struct{ s *Sandbox }

// Files gives access to the working directory.
func (s *Sandbox) Files() backend.Files { return files{s} }

// beneath is RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS and RESOLVE_NO_XDEV.
const beneath = 8 | 4 | 2 | 1

// open adds a call that opens a name below the working directory.
func (f files) open(l *list, name string, flags int) int {
	how := binary.LittleEndian.AppendUint64(nil, uint64(flags|openCloexec|openNoFollow(l.arch)))
	how = binary.LittleEndian.AppendUint64(how, 0)
	how = binary.LittleEndian.AppendUint64(how, beneath)
	return l.do("openat2", num(f.s.work), l.str(name), l.bytes(how), num(len(how)))
}

// stat adds a call that describes an open file, or an entry of a directory.
func stat(l *list, add func(string, ...arg) int, dir arg, name string, at int) int {
	const basic = 0x7ff
	flags := atNoFollow
	if name == "" {
		flags = atEmptyPath
	}
	return add("statx", dir, l.str(name), num(flags), num(basic), answer(at))
}

const statSize = 256

// closed returns an error if the sandbox is closed.
func (f files) closed(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-f.s.closed:
		return fs.ErrClosed
	case <-f.s.c.gone:
		return fs.ErrClosed
	default:
		return nil
	}
}

// do calls g and gives its error the name of the operation.
func (f files) do(ctx context.Context, op, name string, change bool, g func() error) error {
	err := f.closed(ctx)
	if err == nil && change {
		err = f.s.live()
	}
	if err == nil {
		err = g()
	}
	if errors.Is(err, errGone) {
		err = fs.ErrClosed
	}
	if err != nil && ctx.Err() == nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return err
}

// run carries out a list. A look-up that raced with a rename is repeated.
func (f files) run(build func(l *list)) (reply, error) {
	for try := 1; ; try++ {
		l := f.s.c.list()
		build(l)
		r, err := f.s.c.run(l)
		if try < 100 && errors.Is(err, syscall.EAGAIN) {
			continue
		}
		return r, err
	}
}

// Open opens a regular file for reading.
func (f files) Open(ctx context.Context, name string) (opened backend.File, err error) {
	err = f.do(ctx, "open", name, false, func() error {
		var fd, st int
		r, failed := f.run(func(l *list) {
			l.size = statSize
			fd = f.open(l, name, openNonblock|openNoTTY)
			st = stat(l, l.try, result(fd), "", 0)
		})
		if errors.Is(failed, syscall.ELOOP) || errors.Is(failed, syscall.EXDEV) || errors.Is(failed, syscall.ENXIO) { // a link, a way out, a socket
			return fmt.Errorf("%w: %w", fs.ErrInvalid, failed)
		}
		if failed != nil {
			return failed
		}
		info, ok := describe(path.Base(name), r.bytes)
		if r.results[st] != 0 || !ok || !info.Mode.IsRegular() {
			f.s.c.drop(int(r.results[fd]))
			return fs.ErrInvalid
		}
		opened = &file{s: f.s, fd: int(r.results[fd]), name: path.Base(name)}
		return nil
	})
	return opened, err
}

// file is an open file.
type file struct {
	s    *Sandbox
	fd   int
	name string
	at   int64
	shut bool
}

func (x *file) use() error {
	if x.shut {
		return fs.ErrClosed
	}
	return files{x.s}.closed(x.s.context)
}

func (x *file) Read(p []byte) (int, error) {
	if err := x.use(); err != nil || len(p) == 0 {
		return 0, err
	}
	l := x.s.c.list()
	size := min(len(p), maxAnswer)
	l.size, l.from = size, 1
	l.do("pread64", num(x.fd), answer(0), num(size), num(x.at))
	r, err := x.s.c.run(l)
	if err != nil {
		return 0, err
	}
	if len(r.bytes) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.bytes)
	x.at += int64(n)
	return n, nil
}

func (x *file) Stat(context.Context) (backend.FileInfo, error) {
	if err := x.use(); err != nil {
		return backend.FileInfo{}, err
	}
	l := x.s.c.list()
	l.size = statSize
	stat(l, l.do, num(x.fd), "", 0)
	r, err := x.s.c.run(l)
	if err != nil {
		return backend.FileInfo{}, err
	}
	info, ok := describe(x.name, r.bytes)
	if !ok {
		return info, errGone
	}
	return info, nil
}

func (x *file) Close() error {
	if x.shut {
		return fs.ErrClosed
	}
	x.shut = true
	x.s.c.drop(x.fd)
	return nil
}

// describe reads a struct statx.
func describe(name string, b []byte) (backend.FileInfo, bool) {
	if len(b) < statSize {
		return backend.FileInfo{}, false
	}
	u16, u32, u64 := binary.LittleEndian.Uint16, binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	kind := u16(b[28:])
	mode := fs.FileMode(kind & 0o777)
	switch kind & 0o170000 {
	case 0o100000:
	case 0o040000:
		mode |= fs.ModeDir
	case 0o120000:
		mode |= fs.ModeSymlink
	case 0o010000:
		mode |= fs.ModeNamedPipe
	case 0o140000:
		mode |= fs.ModeSocket
	case 0o020000:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case 0o060000:
		mode |= fs.ModeDevice
	default:
		mode |= fs.ModeIrregular
	}
	return backend.FileInfo{
		Name: name, Mode: mode, Size: max(int64(u64(b[40:])), 0), Blocks: int64(u64(b[48:])), Links: uint64(u32(b[16:])),
		ModTime: time.Unix(int64(u64(b[112:])), int64(u32(b[120:]))), ID: u64(b[32:]),
		Mark: fmt.Sprintf("%d.%d.%d", u64(b[32:]), u64(b[96:]), u32(b[104:])),
	}, true
}

// Stat describes an entry without following it.
func (f files) Stat(ctx context.Context, name string) (info backend.FileInfo, err error) {
	err = f.do(ctx, "stat", name, false, func() error {
		r, failed := f.run(func(l *list) {
			l.size = statSize
			fd := f.open(l, name, openPath)
			stat(l, l.do, result(fd), "", 0)
			l.finally("close", result(fd))
		})
		if failed != nil {
			return failed
		}
		var ok bool
		if info, ok = describe(path.Base(name), r.bytes); !ok {
			return errGone
		}
		return nil
	})
	return info, err
}

// makeDirs makes a directory and its parents.
func (f files) makeDirs(name string) error {
	if name == "." || name == "/" {
		return nil
	}
	if err := f.makeDirs(path.Dir(name)); err != nil {
		return err
	}
	var made int
	r, err := f.run(func(l *list) {
		fd := f.open(l, path.Dir(name), openDirectory(l.arch))
		made = l.try("mkdirat", result(fd), l.str(path.Base(name)), num(0o755))
		l.finally("close", result(fd))
	})
	if err != nil {
		return err
	}
	if _, err = r.value(made); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Mkdir makes a directory and its missing parents.
func (f files) Mkdir(ctx context.Context, name string) error {
	return f.do(ctx, "mkdir", name, true, func() error {
		err := f.makeDirs(name)
		if err == nil {
			_, err = f.run(func(l *list) {
				fd := f.open(l, name, openDirectory(l.arch))
				l.finally("close", result(fd))
			})
		}
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
			return fs.ErrExist
		}
		return err
	})
}

// noReplace is RENAME_NOREPLACE, unless a file may be replaced.
func noReplace(overwrite bool) int {
	if overwrite {
		return 0
	}
	return 1
}

// Rename gives an entry another name.
func (f files) Rename(ctx context.Context, from, to string, overwrite bool) error {
	return f.do(ctx, "rename", from, true, func() error {
		_, err := f.run(func(l *list) {
			source := f.open(l, path.Dir(from), openDirectory(l.arch))
			target := f.open(l, path.Dir(to), openDirectory(l.arch))
			l.do("renameat2", result(source), l.str(path.Base(from)), result(target), l.str(path.Base(to)), num(noReplace(overwrite)))
			l.finally("close", result(source))
			l.finally("close", result(target))
		})
		return err
	})
}

// Remove removes a file or link.
func (f files) Remove(ctx context.Context, name string) error {
	return f.do(ctx, "remove", name, false, func() error {
		_, err := f.run(func(l *list) {
			dir := f.open(l, path.Dir(name), openDirectory(l.arch))
			l.do("unlinkat", result(dir), l.str(path.Base(name)), num(0))
			l.finally("close", result(dir))
		})
		return err
	})
}

// Put writes a temporary file and then renames it. The relay writes the bytes, so they count as the
// container's memory.
func (f files) Put(ctx context.Context, name string, data []byte, overwrite bool) error {
	return f.do(ctx, "write", name, true, func() error {
		if err := f.makeDirs(path.Dir(name)); err != nil {
			return err
		}
		temp := ".put-" + rand.Text()
		var dir, fd int
		r, err := f.run(func(l *list) {
			dir = f.open(l, path.Dir(name), openDirectory(l.arch))
			fd = l.try("openat", result(dir), l.str(temp), num(openWrite|openCreate|openExclusive|openCloexec|openNoFollow(l.arch)), num(0o644))
		})
		if err != nil {
			return err
		}
		parent := int(r.results[dir])
		defer f.s.c.drop(parent)
		file, err := r.value(fd)
		if err != nil {
			return err
		}
		err = f.s.c.writeFile(file, data)
		f.s.c.drop(file)
		if err == nil {
			err = ctx.Err()
		}
		l := f.s.c.list()
		if err == nil {
			l.do("renameat2", num(parent), l.str(temp), num(parent), l.str(path.Base(name)), num(noReplace(overwrite)))
			_, err = f.s.c.run(l)
		}
		if err != nil {
			l = f.s.c.list()
			l.try("unlinkat", num(parent), l.str(temp), num(0))
			_, _ = f.s.c.run(l)
		}
		return err
	})
}

// Watch reports changes below a directory.
func (f files) Watch(ctx context.Context, name string) (backend.Watch, error) {
	if err := f.closed(ctx); err != nil {
		return nil, &fs.PathError{Op: "watch", Path: name, Err: err}
	}
	f.s.mu.Lock()
	full := f.s.watches >= backend.MaxWatches
	if !full {
		f.s.watches++
	}
	f.s.mu.Unlock()
	if full {
		return nil, &fs.PathError{Op: "watch", Path: name, Err: syscall.EMFILE}
	}
	w, err := backend.NewWatch(ctx, f, name)
	if err != nil {
		f.s.unwatch()
		return nil, err
	}
	return &watch{Watch: w, s: f.s}, nil
}

func (s *Sandbox) unwatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches--
}

// watch is a Watch that counts among those of its sandbox, and ends with it.
type watch struct {
	backend.Watch
	s    *Sandbox
	once sync.Once
}

// Next waits for changes.
func (w *watch) Next(ctx context.Context) ([]backend.Change, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.s.context, func() { cancel(fs.ErrClosed) })() //nolint:contextcheck // that of the sandbox
	list, err := w.Watch.Next(ctx)
	if err != nil && errors.Is(context.Cause(ctx), fs.ErrClosed) {
		err = fs.ErrClosed
	}
	return list, err
}

// Close ends the watch.
func (w *watch) Close() error {
	w.once.Do(w.s.unwatch)
	return w.Watch.Close()
}

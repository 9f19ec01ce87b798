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
	"slices"
	"strings"
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

// maxSorted is how many names of a directory are read to find the first of them.
const maxSorted = 20_000

// List returns entries of a directory.
func (f files) List(ctx context.Context, name string, limit int) (entries []backend.FileInfo, more bool, err error) {
	err = f.do(ctx, "list", name, false, func() error {
		names, failed := f.small(name)
		if errors.Is(failed, errMore) {
			names, failed = f.large(ctx, name, max(limit+1, maxSorted))
		}
		if failed != nil {
			return failed
		}
		if more = len(names) > limit; more {
			slices.Sort(names)
			names = names[:limit]
		}
		entries = make([]backend.FileInfo, 0, len(names))
		for some := range slices.Chunk(names, maxCalls-2) {
			if entries, failed = f.describe(name, some, entries); failed != nil {
				return failed
			}
		}
		return nil
	})
	return entries, more, err
}

// describe adds what is known of entries of a directory. It leaves out entries that were removed meanwhile, and all of them
// if the program has removed, replaced or shut the directory.
func (f files) describe(dir string, names []string, entries []backend.FileInfo) ([]backend.FileInfo, error) {
	r, err := f.run(func(l *list) {
		l.size = statSize * len(names)
		fd := f.open(l, dir, openDirectory(l.arch))
		for i, n := range names {
			stat(l, l.try, result(fd), n, statSize*i)
		}
		l.finally("close", result(fd))
	})
	for _, programs := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR, syscall.ELOOP, syscall.EXDEV} {
		if errors.Is(err, programs) {
			return entries, nil
		}
	}
	if err != nil {
		return entries, err
	}
	for i, n := range names {
		if _, gone := r.value(1 + i); gone == nil && len(r.bytes) >= statSize*(i+1) {
			info, _ := describe(n, r.bytes[statSize*i:])
			entries = append(entries, info)
		}
	}
	return entries, nil
}

// errMore means that a directory is too large to be read with one packet.
var errMore = errors.New("there are more names")

// smallNames bounds the bytes of names of a directory that is read with one packet. Any one name is shorter.
const smallNames = 4 << 10

// small reads the names of a small directory with one packet.
func (f files) small(name string) ([]string, error) {
	var first, next int
	r, err := f.run(func(l *list) {
		l.size = 2 * smallNames
		fd := f.open(l, name, openDirectory(l.arch))
		first = l.do("getdents64", result(fd), answer(0), num(smallNames))
		next = l.try("getdents64", result(fd), answer(smallNames), num(smallNames))
		l.finally("close", result(fd))
		l.from = first + 1
	})
	if err != nil {
		return nil, err
	}
	switch {
	case r.results[first] != int64(len(r.bytes)):
		return nil, errGone
	case r.results[next] != 0:
		return nil, errMore
	}
	names, _, err := parseNames(nil, r.bytes)
	return names, err
}

// large reads at most about limit names of a directory.
func (f files) large(ctx context.Context, name string, limit int) ([]string, error) {
	var fd int
	r, err := f.run(func(l *list) { fd = f.open(l, name, openDirectory(l.arch)) })
	if err != nil {
		return nil, err
	}
	dir := int(r.results[fd])
	defer f.s.c.drop(dir)
	return f.names(ctx, dir, limit)
}

// names reads at most about limit names of an open directory.
func (f files) names(ctx context.Context, dir, limit int) (names []string, err error) {
	for seen := 0; seen < limit+2; { // with . and ..
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l := f.s.c.list()
		l.size, l.from = maxAnswer, 1
		l.do("getdents64", num(dir), answer(0), num(maxAnswer))
		r, err := f.s.c.run(l)
		if err != nil {
			return nil, err
		}
		if len(r.bytes) == 0 {
			break
		}
		var n int
		if names, n, err = parseNames(names, r.bytes); err != nil {
			return nil, err
		}
		seen += n
	}
	return names, nil
}

// parseNames adds the names of directory entries to a list, without . and .., and counts the entries.
func parseNames(names []string, b []byte) (all []string, seen int, err error) {
	for ; len(b) > 0; seen++ {
		if len(b) < 20 {
			return nil, 0, errGone
		}
		size := int(binary.LittleEndian.Uint16(b[16:]))
		if size < 20 || size > len(b) {
			return nil, 0, errGone
		}
		text := b[19:size]
		if end := slices.Index(text, 0); end >= 0 {
			text = text[:end]
		}
		n := string(text)
		if n == "" || strings.Contains(n, "/") {
			return nil, 0, errGone
		}
		if n != "." && n != ".." {
			names = append(names, n)
		}
		b = b[size:]
	}
	return names, seen, nil
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

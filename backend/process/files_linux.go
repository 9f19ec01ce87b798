package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// files gives access to a working directory through a descriptor. The kernel itself refuses every
// name that leads out of it.
type files struct {
	dir     int
	sandbox *sandbox // needed to write; nil: read only
}

// heldFiles is the working directory of a sandbox. Each call fails once the sandbox is closed.
type heldFiles struct{ s *sandbox }

// access is a call of heldFiles.
type access struct {
	heldFiles

	op, name string
	changes  bool // it needs a live sandbox
}

// maxAccesses bounds the calls for a sandbox's files that go on at once. A call that waits for a lock takes a thread of
// the server, and Go ends a program that has too many threads.
const maxAccesses = 16

// hold keeps the descriptors of the sandbox open. It waits while maxAccesses calls go on.
func (a access) hold(ctx context.Context) (release func(), err error) {
	select {
	case a.s.accesses <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	hold := a.s.hold
	if a.changes {
		hold = a.s.holdLive
	}
	let, err := hold()
	if err != nil {
		<-a.s.accesses
		return nil, &fs.PathError{Op: a.op, Path: a.name, Err: err}
	}
	return func() {
		let()
		<-a.s.accesses
	}, nil
}

// within calls f, and does not wait for it after ctx has ended: a program can hold the lock of a directory while the
// kernel copies names to the program's memory, and no signal ends the server's wait for that lock. If f returns a value
// after ctx has ended, drop releases the value.
func within[T any](ctx context.Context, a access, f func(files) (T, error), drop func(T)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	release, err := a.hold(ctx)
	if err != nil {
		return none, err
	}
	if backend.MayBlock(ctx) {
		defer release()
		return f(files{a.s.slot.Dirs[jail.DirWork], a.s})
	}
	type result struct {
		value T
		err   error
	}
	got := make(chan result)
	go func() {
		defer release()
		v, err := f(files{a.s.slot.Dirs[jail.DirWork], a.s})
		select {
		case got <- result{v, err}:
		case <-ctx.Done():
			if err == nil {
				drop(v)
			}
		}
	}()
	select {
	case r := <-got:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// change calls f, which needs a live sandbox. If ctx or changeLimit ends first, the change may still happen as soon as
// the program lets go of the directory.
func (h heldFiles) change(ctx context.Context, op, name string, f func(context.Context, files) error) error {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	_, err := within(ctx, access{h, op, name, true}, func(x files) (struct{}, error) { return struct{}{}, f(ctx, x) }, func(struct{}) {})
	return err
}

func (h heldFiles) Open(ctx context.Context, name string) (backend.File, error) {
	return within(ctx, access{h, "open", name, false}, func(x files) (backend.File, error) { return x.Open(name) }, func(f backend.File) { _ = f.Close() })
}

func (h heldFiles) List(ctx context.Context, name string, limit int) ([]backend.FileInfo, bool, error) {
	l, err := within(ctx, access{h, "list", name, false}, func(x files) (l listed, err error) {
		l.entries, l.more, err = x.List(name, limit)
		return l, err
	}, func(listed) {})
	return l.entries, l.more, err
}

// Changed returns the time of the last change of the working directory's inode, which takes none of its locks.
func (h heldFiles) Changed() (time.Time, error) {
	release, err := h.s.hold()
	if err != nil {
		return time.Time{}, err
	}
	defer release()
	var st unix.Stat_t
	if err := unix.Fstat(h.s.slot.Dirs[jail.DirWork], &st); err != nil {
		return time.Time{}, err
	}
	return time.Unix(st.Ctim.Unix()), nil
}

// listed is the result of List.
type listed struct {
	entries []backend.FileInfo
	more    bool
}

func (h heldFiles) Stat(ctx context.Context, name string) (backend.FileInfo, error) {
	return within(ctx, access{h, "stat", name, false}, func(x files) (backend.FileInfo, error) { return x.Stat(name) }, func(backend.FileInfo) {})
}

func (h heldFiles) Remove(ctx context.Context, name string) error {
	_, err := within(ctx, access{h, "remove", name, false}, func(x files) (struct{}, error) { return struct{}{}, x.Remove(name) }, func(struct{}) {})
	return err
}

func (h heldFiles) Mkdir(ctx context.Context, name string) error {
	return h.change(ctx, "mkdir", name, func(_ context.Context, x files) error { return x.Mkdir(name) })
}

func (h heldFiles) Rename(ctx context.Context, from, to string, overwrite bool) error {
	return h.change(ctx, "rename", from, func(_ context.Context, x files) error { return x.Rename(from, to, overwrite) })
}

func (h heldFiles) Put(ctx context.Context, name string, data []byte, overwrite bool) error {
	return h.change(ctx, "write", name, func(ctx context.Context, x files) error { return x.Put(ctx, name, data, overwrite) })
}

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func (f files) openDirectory(name string) (int, error) {
	return repeat(func() (int, error) {
		return unix.Openat2(f.dir, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: beneath})
	})
}

// repeat repeats a look-up with which a rename has raced.
func repeat(open func() (int, error)) (fd int, err error) {
	for try := 1; ; try++ {
		fd, err = open()
		if try >= openTries || !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// maxSorted is how many names of a directory are read to find the first of them.
const maxSorted = 20_000

// openTries bounds how often a look-up is repeated. A program can make every look-up fail, by
// continuous renames or by a lease that it does not give up.
const openTries = 100

// Open opens a regular file for reading.
func (f files) Open(name string) (backend.File, error) {
	fd, err := f.regular(name)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) { // a link, a way out
		err = fmt.Errorf("%w: %w", fs.ErrInvalid, err)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &file{os.NewFile(uintptr(fd), name)}, nil
}

// regular returns a descriptor of a regular file. It opens nothing else: a program can hold the lock of a pipe while
// the kernel copies to the program's memory, and no signal ends the server's wait for that lock in open.
func (f files) regular(name string) (int, error) {
	at, err := repeat(func() (int, error) {
		return unix.Openat2(f.dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath})
	})
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(at) }()
	var st unix.Stat_t
	err = unix.Fstat(at, &st)
	switch kind := st.Mode & unix.S_IFMT; {
	case err != nil:
	case kind == unix.S_IFLNK:
		err = unix.ELOOP
	case kind != unix.S_IFREG:
		err = fs.ErrInvalid
	}
	if err != nil {
		return -1, err
	}
	return repeat(func() (int, error) {
		return unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	})
}

// List returns entries of a directory.
func (f files) List(name string, limit int) ([]backend.FileInfo, bool, error) {
	fd, err := f.openDirectory(name)
	if err != nil {
		return nil, false, &fs.PathError{Op: "list", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	names, err := namesIn(fd, max(limit+1, maxSorted))
	more := len(names) > limit
	if more { // the first by name, as a person expects
		slices.Sort(names)
		names = names[:limit]
	}
	if err != nil {
		return nil, false, &fs.PathError{Op: "list", Path: name, Err: err}
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

// namesIn returns at most limit names of an open directory. It does not use [os.File], which would
// first try to poll the directory.
func namesIn(dir, limit int) (names []string, err error) {
	var buf [4 << 10]byte
	for len(names) < limit {
		n, err := unix.Getdents(dir, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return names, nil
		default:
			_, _, names = unix.ParseDirent(buf[:n], limit-len(names), names)
		}
	}
	return names, nil
}

// Stat describes an entry without following it.
func (f files) Stat(name string) (backend.FileInfo, error) {
	fd, err := unix.Openat2(f.dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return backend.FileInfo{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return backend.FileInfo{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return describe(path.Base(name), &st), nil
}

// Mkdir makes a directory and its missing parents.
func (f files) Mkdir(name string) error {
	err := asUser(f.sandbox.slot.UID(), func() error { return f.makeDirs(name) })
	if err == nil {
		var fd int
		if fd, err = f.openDirectory(name); err == nil {
			_ = unix.Close(fd)
		} else if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			err = fs.ErrExist
		}
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return nil
}

// Rename gives an entry another name.
func (f files) Rename(from, to string, overwrite bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if overwrite {
		flags = 0
	}
	return f.in(path.Dir(from), func(source int) error {
		return f.in(path.Dir(to), func(target int) error {
			return asUser(f.sandbox.slot.UID(), func() error {
				return unix.Renameat2(source, path.Base(from), target, path.Base(to), flags)
			})
		}, "rename", to)
	}, "rename", from)
}

// Remove removes a file or link.
func (f files) Remove(name string) error {
	return f.in(path.Dir(name), func(dir int) error { return unix.Unlinkat(dir, path.Base(name), 0) }, "remove", name)
}

// in calls do with a descriptor of the directory dir.
func (f files) in(dir string, do func(fd int) error, op, name string) error {
	fd, err := f.openDirectory(dir)
	if err == nil {
		err = do(fd)
		_ = unix.Close(fd)
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// Put writes a temporary file and then renames it. A process in the sandbox writes the bytes, so
// that the kernel charges their memory to the sandbox and not to the server. It writes through a
// descriptor, so renames by programs in the sandbox do not matter.
func (f files) Put(ctx context.Context, name string, data []byte, overwrite bool) error {
	awake, err := f.sandbox.stayAwake()
	if err != nil {
		return err
	}
	defer awake()
	uid := f.sandbox.slot.UID()
	err = asUser(uid, func() error { return f.makeDirs(path.Dir(name)) })
	if err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	return f.in(path.Dir(name), func(dir int) error {
		temp := ".put-" + rand.Text()
		fd := -1
		err := asUser(uid, func() (err error) {
			fd, err = unix.Openat(dir, temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
			return err
		})
		if err != nil {
			return err
		}
		err = f.fill(ctx, fd, data)
		_ = unix.Close(fd)
		flags := uint(unix.RENAME_NOREPLACE)
		if overwrite {
			flags = 0
		}
		if err == nil {
			err = asUser(uid, func() error { return unix.Renameat2(dir, temp, dir, path.Base(name), flags) })
		}
		if err != nil {
			_ = asUser(uid, func() error { return unix.Unlinkat(dir, temp, 0) })
		}
		return err
	}, "write", name)
}

// makeDirs makes a directory and its parents, one path element at a time.
func (f files) makeDirs(name string) error {
	if name == "." || name == "/" {
		return nil
	}
	if err := f.makeDirs(path.Dir(name)); err != nil {
		return err
	}
	parent, err := f.openDirectory(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(parent) }()
	if err := unix.Mkdirat(parent, path.Base(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// fill makes a process in the sandbox write data into an open file.
func (f files) fill(ctx context.Context, fd int, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	r, w, err := pipe(1)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	null, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(r)
		return err
	}
	cmd := jail.Command{Argv: []string{writer(), "bs=64k"}, Env: []string{}, Dir: backend.TempDir, Files: []int{r, fd, null}}
	f.sandbox.relocate(&cmd)
	if err = ctx.Err(); err != nil {
		closeBoth(r, null)
		return err
	}
	proc, err := f.sandbox.slot.Start(cmd)
	closeBoth(r, null)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = w.SetWriteDeadline(time.Unix(1, 0)) })
	_, writeErr := w.Write(data)
	stop()
	_ = w.Close()
	select {
	case <-proc.Done():
	case <-ctx.Done():
		_ = proc.Signal(int(unix.SIGKILL))
		return ctx.Err()
	}
	exit, err := proc.Exit()
	var st unix.Stat_t
	switch {
	case err != nil:
		return err
	case exit.Killed:
		return fs.ErrClosed
	case unix.Fstat(fd, &st) == nil && st.Size == int64(len(data)) && writeErr == nil && exit.Status.ExitStatus() == 0:
		return nil
	}
	var fsys unix.Statfs_t
	if unix.Fstatfs(fd, &fsys) == nil && (fsys.Bavail == 0 || fsys.Ffree == 0 || int64(fsys.Bavail)*fsys.Bsize < int64(len(data))-st.Size) {
		return unix.ENOSPC
	}
	return unix.EIO
}

// changeLimit bounds the time that a change, such as writing a file, may take.
const changeLimit = 20 * time.Second

// writer returns the program that copies its stdin to its stdout.
var writer = sync.OnceValue(func() string {
	if _, err := os.Stat("/bin/dd"); err != nil {
		return "/usr/bin/dd"
	}
	return "/bin/dd"
})

func closeBoth(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// asUser calls do with the sandbox's user for file access. Root needs that, because the sandbox's
// file systems have no other user.
func asUser(uid int, do func() error) error {
	if os.Geteuid() != 0 || uid == 0 {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := errors.Join(unix.Setfsgid(uid), unix.Setfsuid(uid)); err != nil {
		return err
	}
	defer func() { _ = errors.Join(unix.Setfsuid(0), unix.Setfsgid(0)) }()
	return do()
}

type file struct{ *os.File }

func (f *file) Stat(context.Context) (backend.FileInfo, error) {
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
		ModTime: time.Unix(st.Mtim.Unix()), ID: st.Ino,
		Mark: fmt.Sprintf("%d.%d.%d", st.Ino, st.Ctim.Sec, st.Ctim.Nsec),
	}
}

// putProgram puts files below ProgramDir.
func (s *sandbox) putProgram(program []backend.ProgramFile) error {
	if len(program) == 0 {
		return nil
	}
	return s.orKill(func() error { return putProgram(s.slot.Dirs[jail.DirProgram], s.slot.UID(), program) })
}

// orKill calls do, which programs can delay as within says. If do takes longer than heldLimit, orKill kills the sandbox,
// so that do returns.
func (s *sandbox) orKill(do func() error) error {
	kill := time.AfterFunc(heldLimit, func() { _ = s.killAll() })
	defer kill.Stop()
	return do()
}

// heldLimit is how long a call that otherwise takes no time may wait for programs.
const heldLimit = 5 * time.Second

// putProgram writes the files that a program needs at its start into dir, where the program itself
// cannot write. uid is the owner of the directory.
func putProgram(dir, uid int, program []backend.ProgramFile) error {
	if len(program) == 0 {
		return nil
	}
	return asUser(uid, func() error {
		for _, p := range program {
			if err := putFile(dir, p); err != nil {
				return &fs.PathError{Op: "write", Path: backend.ProgramDir + "/" + p.Name, Err: err}
			}
		}
		return nil
	})
}

func putFile(dir int, p backend.ProgramFile) error {
	how := &unix.OpenHow{Flags: unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC, Mode: 0o644, Resolve: beneath}
	if p.Exec {
		how.Mode = 0o755
	}
	fd, err := unix.Openat2(dir, p.Name, how)
	if errors.Is(err, unix.EEXIST) { // a file of an earlier process in the same sandbox
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
	return unix.Fchmod(fd, uint32(how.Mode)) // not Mode of the open, from which the kernel removes the server's umask
}

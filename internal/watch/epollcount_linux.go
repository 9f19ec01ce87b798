package watch

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// epollCount is what the descriptor tables of a sandbox show of its epoll watches.
type epollCount struct {
	watches int           // all of them
	hidden  int           // of these, the most that descriptors may hold that processes hide
	woken   int           // most that one event can wake
	ofOne   int           // most that belong to one file, or to files that cannot be told apart
	ofPipe  int           // most that belong to one pipe
	closed  int           // most wakes by closing all files of a pipe
	opened  int           // how often one pipe is open
	transit bool          // a descriptor is on its way in a Unix socket
	unsure  bool          // a process ended during the count, so it may be too high, or could not be read, as while it starts
	took    time.Duration // processor time of the count

	processes int
	sources   map[source]int
	often     []string // path in /proc of one descriptor of each pipe that is open more than oftenOpen times
}

// countEpoll counts the watches of the sandbox. It stops above limit watches. Unless transit is
// set, it does not look for descriptors on their way.
func (s *Target) countEpoll(limit int, transit bool) (c epollCount) {
	how := epollLook{limit: limit, transit: transit}
	if transit {
		how.inNamespace = s.unixSockets()
	}
	return s.countEpollOf(s.processes(), how)
}

// epollLook says how epoll watches are counted.
type epollLook struct {
	limit       int // stop above so many
	transit     bool
	inNamespace map[uint64]bool // the Unix sockets of the sandbox; nil: not known
	until       time.Time       // stop then; zero: never
}

// countEpollOf is countEpoll for the processes of the sandbox, of which the first is init. It cannot use the number of
// descriptors: a watch belongs to an open file and a descriptor number, and stays when the number is closed. So a
// few files can fill a set through all numbers.
func (s *Target) countEpollOf(processes []string, how epollLook) (c epollCount) {
	runtime.LockOSThread() // for its clock
	began := threadTime()
	c.sources = map[source]int{}
	defer func() {
		c.took = threadTime() - began
		runtime.UnlockOSThread()
	}()
	if len(processes) < 2 {
		return c
	}
	var maybe []watched
	var sets openSets
	files := openFiles{pipes: map[uint64]pipe{}, sockets: map[uint64]string{}}
	for _, p := range processes[1:] {
		c.processes++
		hidden := 0 // of the process
		for _, dir := range fileTables(p) {
			if !how.until.IsZero() && time.Now().After(how.until) {
				break
			}
			names, err := readNames(dir)
			hidden = max(hidden, c.hiddenIn(dir, err))
			for _, n := range names {
				s.progress.steps.Add(1)
				path := filepath.Join(dir, n)
				if to, err := os.Readlink(path); err == nil && to == epollLink {
					another, sure := sets.add(filepath.Base(filepath.Dir(dir)), n)
					c.unsure = c.unsure || !sure
					if !another {
						continue
					}
					asked := time.Now()
					maybe = append(maybe, c.watchesIn(filepath.Dir(dir), n, how.limit)...)
					s.progress.read(time.Since(asked))
				} else if err == nil {
					files.add(path, to)
				}
			}
			if c.watches > how.limit {
				return c
			}
		}
		c.hidden += hidden
	}
	if !s.Slot.AddsWatches() { // the programs have not added more than that
		c.hidden = min(c.hidden, jail.FirstWatches)
	}
	c.watches += c.hidden
	c.woken = woken(c.watches, len(maybe))
	if c.woken > maxWoken {
		c.woken = woken(c.watches, c.countSets(maybe))
	}
	c.pipes(&files)
	c.transit = how.transit && files.inTransit(how.inNamespace)
	return c
}

// hiddenIn returns how many watches the descriptors of a task may hold at most, if dir, their directory
// in /proc, could not be read. A program may hide its descriptors. But every process is unreadable
// until init has executed its program, so the count is then unsure.
func (c *epollCount) hiddenIn(dir string, err error) int {
	if err == nil || errors.Is(err, fs.ErrNotExist) || !lives(filepath.Dir(dir)) {
		return 0
	}
	c.unsure = true
	return mostWatches(countFiles(dir))
}

// threadTime returns the processor time that the calling thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// openSets are the epoll sets of a sandbox. Processes that were forked share the sets of their
// parent.
type openSets []openSet // in the kernel's order of files

type openSet struct{ task, descriptor int }

// add adds a set by the id of a task and its descriptor. another is false if the set is there
// already. sure is false if the set cannot be compared with others, because it or one of them is
// gone.
func (s *openSets) add(task, descriptor string) (another, sure bool) {
	id, idErr := strconv.Atoi(task)
	fd, fdErr := strconv.Atoi(descriptor)
	if idErr != nil || fdErr != nil {
		return true, false
	}
	var failed unix.Errno
	added := openSet{id, fd}
	at, found := slices.BinarySearchFunc(*s, added, func(a, b openSet) int {
		const kcmpFile = 0
		r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a.task), uintptr(b.task), kcmpFile, uintptr(a.descriptor), uintptr(b.descriptor), 0)
		switch {
		case errno != 0:
			failed = errno
			return -1
		case r == 0:
			return 0
		case r == 1:
			return -1
		default:
			return 1
		}
	})
	switch {
	case failed == unix.ENOSYS || failed == unix.EPERM: // the kernel does not compare
		return true, true
	case failed != 0:
		return true, false
	case !found:
		*s = slices.Insert(*s, at, added)
	}
	return !found, true
}

// openFiles are the open files of a sandbox that matter to its epoll watches.
type openFiles struct {
	pipes   map[uint64]pipe   // pipes without a name, by inode
	named   []string          // paths in /proc of descriptors of files with names, which may be pipes
	sockets map[uint64]string // path in /proc of one descriptor of a socket, by inode
}

// pipe is a pipe of a sandbox.
type pipe struct {
	open int    // how often it is open
	path string // path in /proc of one of its descriptors
}

// add adds a descriptor by its path in /proc and the target of that link.
func (f *openFiles) add(path, to string) {
	kind, inode, _ := strings.Cut(strings.TrimSuffix(to, "]"), ":[")
	n, err := strconv.ParseUint(inode, 10, 64)
	switch {
	case strings.HasPrefix(to, "/"):
		f.named = append(f.named, path)
	case err != nil:
	case kind == "pipe":
		f.pipes[n] = pipe{f.pipes[n].open + 1, path}
	case kind == "socket":
		f.sockets[n] = path
	}
}

const (
	fewOfPipe = 4   // so many watches of a pipe are harmless however often it is open
	oftenOpen = 64  // so many files of a pipe are closed quickly, whatever watches them
	maxHeld   = 256 // pipes of one sandbox that the server holds at once
)

// hold opens the pipes of a sandbox that are open often, both to read and to write. While they are
// held, closing them wakes no watch, also none that the count does not show. It opens none after until: the
// sandbox's processes may have ended then, and their numbers may belong to others.
func (c epollCount) hold(until time.Time) (release func()) {
	var held []int
	for _, path := range c.often[:min(len(c.often), maxHeld)] {
		if time.Now().After(until) {
			break
		}
		if fd, err := openPipe(path); err == nil {
			held = append(held, fd)
		}
	}
	return func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}
}

// pipes computes ofOne, and what belongs to pipes.
func (c *epollCount) pipes(f *openFiles) {
	named := map[source]int{} // watches of files with names
	for at, n := range c.sources {
		c.ofOne = max(c.ofOne, n)
		p, isPipe := f.pipes[at.inode]
		if _, isSocket := f.sockets[at.inode]; !isPipe && !isSocket && n > fewOfPipe {
			named[at] = n
		}
		if isPipe {
			c.ofPipe, c.closed = max(c.ofPipe, n), max(c.closed, n*p.open)
		}
	}
	for _, p := range f.pipes {
		c.opened = max(c.opened, p.open)
		if p.open > oftenOpen {
			c.often = append(c.often, p.path)
		}
	}
	if len(named) == 0 {
		return
	}
	opened := map[source]int{}
	for _, path := range f.named {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			opened[source{uint64(unix.Major(st.Dev))<<20 | uint64(unix.Minor(st.Dev)), st.Ino}]++ // the kernel's own form of a device
		}
	}
	for at, open := range opened {
		c.ofPipe, c.closed = max(c.ofPipe, named[at]), max(c.closed, named[at]*open)
	}
}

// openPipe opens a pipe by a path in /proc. The program may have put another file there meanwhile,
// which is not opened.
func openPipe(path string) (int, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(at) }()
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return -1, unix.EINVAL
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// unixSockets returns the inodes of the Unix sockets of the sandbox. It returns nil if they are not
// known.
func (s *Target) unixSockets() map[uint64]bool {
	if s.Plain { // the host's network namespace
		return nil
	}
	found := map[uint64]bool{}
	for line := range bytes.Lines(s.readNet("unix")) {
		if f := bytes.Fields(line); len(f) > 6 {
			if n, err := strconv.ParseUint(string(f[6]), 10, 64); err == nil && n != 0 { // 0: a connection that was not accepted yet
				found[n] = true
			}
		}
	}
	return found
}

// inTransit reports whether a descriptor is on its way in a Unix socket. Only a socket on its way,
// or one that was just closed, is in no descriptor table. inNamespace are the Unix sockets of the
// sandbox; nil: unknown.
func (f *openFiles) inTransit(inNamespace map[uint64]bool) bool {
	for inode := range inNamespace {
		if f.sockets[inode] == "" {
			return true
		}
	}
	for inode, path := range f.sockets {
		if inNamespace == nil || inNamespace[inode] {
			dir, fd := filepath.Split(path)
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(filepath.Clean(dir)), "fdinfo", fd))
			if _, waiting, ok := bytes.Cut(text, []byte("scm_fds:")); ok && !bytes.HasPrefix(bytes.TrimSpace(waiting), []byte("0")) {
				return true
			}
		}
	}
	return false
}

// woken returns how many watches one event can wake, if all watch the same and some of them are of
// epoll sets.
func woken(all, sets int) int { return all * (1 + min(sets, mostNested)) }

// lives reports whether a task has memory. A task that is ending has none, and its
// descriptors cannot be read either.
func lives(task string) bool {
	text, err := os.ReadFile(filepath.Join(task, "statm"))
	return err == nil && len(text) > 0 && text[0] != '0'
}

const epollLink = "anon_inode:[eventpoll]"

// watched is a file that an epoll set watches and that may be an epoll set, too.
type watched struct {
	task string // directory in /proc of a task that has the set
	set  string // descriptor of the set
	file string // descriptor through which the file was added to the set
}

// source is the file system and inode of a file that a set watches, as fdinfo shows them. All
// files that are in no file system have one inode.
type source struct{ device, inode uint64 }

// watchesIn adds the watches of an epoll set to the count, from the fdinfo file of its descriptor.
// It stops above limit. It returns those that may be of epoll sets: all epoll sets have one inode,
// as have other files that are in no file system.
func (c *epollCount) watchesIn(task, set string, limit int) (sets []watched) {
	f, err := os.Open(filepath.Join(task, "fdinfo", set))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var self unix.Stat_t
	err = unix.Stat(filepath.Join(task, "fd", set), &self)
	for text := bufio.NewScanner(f); c.watches <= limit && text.Scan(); {
		fields := bytes.Fields(text.Bytes()) // tfd: N events: N data: N pos:N ino:N sdev:N
		if len(fields) < 2 || string(fields[0]) != "tfd:" {
			continue
		}
		c.watches++
		var at source
		for _, field := range fields {
			name, value, _ := strings.Cut(string(field), ":")
			n, _ := strconv.ParseUint(value, 16, 64)
			switch name {
			case "ino":
				at.inode = n
			case "sdev":
				at.device = n
			}
		}
		c.sources[at]++
		if err != nil || at.inode == self.Ino {
			sets = append(sets, watched{task, set, string(fields[1])})
		}
	}
	return sets
}

// countSets returns how many of the files may be epoll sets, but not more than mostNested. The count
// is unsure if a set that watches one of them has been closed meanwhile, as when its process ends.
func (c *epollCount) countSets(files []watched) (n int) {
	for _, w := range files {
		if n == mostNested {
			break
		}
		may, known := w.mayBeSet()
		if may {
			n++
		}
		if !known {
			to, err := os.Readlink(filepath.Join(w.task, "fd", w.set))
			c.unsure = c.unsure || err != nil || to != epollLink
		}
	}
	return n
}

// mayBeSet reports whether the file is not known to be no epoll set. The descriptor through which
// it was added may have been closed or be that of another file now. known is false if that, or
// whether its set is still open, cannot be found out.
func (w watched) mayBeSet() (may, known bool) {
	const kcmpEpollTarget = 7
	to, err := os.Readlink(filepath.Join(w.task, "fd", w.file))
	if err != nil {
		return true, false
	}
	if to == epollLink {
		return true, true
	}
	task, taskErr := strconv.Atoi(filepath.Base(w.task))
	set, setErr := strconv.ParseUint(w.set, 10, 32)
	file, fileErr := strconv.ParseUint(w.file, 10, 32)
	if taskErr != nil || setErr != nil || fileErr != nil {
		return true, false
	}
	slot := [3]uint32{uint32(set), uint32(file), 0}
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(task), uintptr(task), kcmpEpollTarget, uintptr(file), uintptr(unsafe.Pointer(&slot)), 0)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		return false, true // the kernel does not compare, so the link is all that is known
	}
	return errno != 0 || r != 0, errno == 0
}

// mostWatches returns how many watches that many descriptors can hold at most: half of them are
// epoll sets that watch the other half, each through every number.
func mostWatches(files int) int { return (files / 2) * (files / 2) * mostFiles }

// countFiles returns how many descriptors an fd directory of /proc has, also if it is unreadable; none if its process has ended.
// Kernels before 6.2 do not show it; countFiles then returns the most that a program may have.
func countFiles(dir string) int {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0
	case err == nil && (info.Size() > 0 || showsFiles()):
		return int(info.Size())
	}
	return mostFiles
}

// showsFiles reports whether the size of an fd directory is the number of its descriptors. A process that has ended and was not
// waited for has none.
var showsFiles = sync.OnceValue(func() bool {
	info, err := os.Stat("/proc/self/fd")
	return err == nil && info.Size() > 0
})

const mostFiles = 512 // most descriptors of a program that has the server's user

// fileTables returns one fd directory of /proc for each descriptor table of a process. Threads may
// have tables of their own.
func fileTables(pid string) (dirs []string) {
	tasks, _ := readNames("/proc/" + pid + "/task")
	var known []int
	for _, t := range tasks {
		id, err := strconv.Atoi(t)
		if err != nil || slices.ContainsFunc(known, func(other int) bool { return sameFiles(id, other) }) {
			continue
		}
		known, dirs = append(known, id), append(dirs, "/proc/"+pid+"/task/"+t+"/fd")
	}
	return dirs
}

// sameFiles reports whether two tasks share their descriptor table. It returns false if the kernel
// does not say.
func sameFiles(a, b int) bool {
	const kcmpFiles = 2
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	return errno == 0 && r == 0
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}

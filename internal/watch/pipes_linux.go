package watch

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pipesIn has the pipes that one count has found in a sandbox, so that each counts once. Each count has a pipesIn of its own,
// because a process can delay a count until the next one has begun.
type pipesIn struct {
	mu    sync.Mutex
	known map[pipeID]struct{} // guarded by mu
}

// pipeID is the file system and inode of a pipe.
type pipeID struct{ device, inode uint64 }

func newPipes() *pipesIn { return &pipesIn{known: map[pipeID]struct{}{}} }

// add adds a pipe. It returns false if the pipe was added before.
func (c *pipesIn) add(id pipeID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.known[id]
	c.known[id] = struct{}{}
	return !known
}

// inPipes returns the memory of the pipes of all processes, except those that are in pipes already, and adds them to pipes. If
// a process does not answer in time, sure is false, and each of its descriptors counts with pipeBytes. took is the processor
// time of the reads.
func (w *Group) inPipes(pipes *pipesIn) (sum int64, sure bool, took time.Duration) {
	processes := descendants(strconv.Itoa(w.slot.PID()), nil)
	if w.slot.Ended() || len(processes) < 2 {
		return 0, true, 0
	}
	var spent atomic.Int64
	patience := mostPatience
	sure = true
	for _, p := range processes[1:] { // the first one is init, which has no pipes
		size, how := w.exact.read("pipes of "+p, func() (int64, bool) {
			found := timed(func() int64 { return pipes.of(p) })
			spent.Add(int64(found.took))
			return found.value, true
		}, patience)
		switch how {
		case late:
			patience = max(patience/2, leastPatience)
			fallthrough
		case pending:
			if !isZombie(p) {
				sum, sure = sum+int64(countFiles("/proc/"+p+"/fd"))*pipeBytes, false
			}
		case exactly, nothing:
			sum += size
		}
		if sum > w.limits.MemoryBytes {
			break
		}
	}
	return sum, sure, time.Duration(spent.Load())
}

// isZombie reports whether a process has ended, with all of its threads.
func isZombie(p string) bool {
	text, err := os.ReadFile("/proc/" + p + "/status")
	if err != nil {
		return true
	}
	state, _ := inStatus(string(text), "State")
	threads, _ := inStatus(string(text), "Threads")
	return state == "X" || state == "Z" && threads == "1"
}

// of returns the memory of the pipes of a process, except known ones, and makes them known.
func (c *pipesIn) of(p string) (sum int64) {
	dir := filesOf(p)
	names, err := readNames(dir)
	if err != nil {
		return int64(hiddenFiles(dir, err)) * pipeBytes
	}
	process := -1
	for _, n := range names {
		id, ok := pipeAt(dir + "/" + n)
		if !ok || !c.add(id) {
			continue
		}
		if process < 0 {
			process = openTask(dir)
		}
		sum += inPipe(process, n)
	}
	if process >= 0 {
		_ = unix.Close(process)
	}
	return sum
}

// pipeAt returns the pipe of a descriptor, by its path in /proc. ok is false if it is no pipe.
func pipeAt(path string) (id pipeID, ok bool) {
	to, err := os.Readlink(path)
	if err != nil {
		return id, false
	}
	if inode, isPipe := strings.CutPrefix(to, "pipe:["); isPipe {
		id.inode, err = strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 64)
		return id, err == nil
	}
	if to == os.DevNull || strings.HasPrefix(to, "socket:[") || strings.HasPrefix(to, "anon_inode:") {
		return id, false
	}
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return id, false
	}
	return pipeID{st.Dev, st.Ino}, true
}

// openTask returns a pidfd for the process or thread that a directory of descriptors in /proc belongs to, or -1.
func openTask(dir string) int {
	task, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	if err != nil {
		return -1
	}
	flags := 0
	if filepath.Base(filepath.Dir(filepath.Dir(dir))) == "task" {
		flags = unix.O_EXCL // PIDFD_THREAD, since Linux 6.9
	}
	fd, err := unix.PidfdOpen(task, flags)
	if err != nil {
		return -1
	}
	return fd
}

// inPipe returns the memory of the pipe that a descriptor of a process refers to. process is a pidfd. A single byte can keep a
// page in use, so a pipe that is not empty counts with its whole size. So does a pipe whose descriptor the kernel does not
// hand out.
func inPipe(process int, descriptor string) int64 {
	n, err := strconv.Atoi(descriptor)
	if err != nil {
		return 0
	}
	fd, err := unix.PidfdGetfd(process, n, 0)
	if errors.Is(err, unix.EBADF) && process >= 0 { // it was closed meanwhile
		return 0
	}
	if err != nil {
		return pipeBytes
	}
	defer func() { _ = unix.Close(fd) }()
	waiting, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil { // the descriptor refers to another kind of file now
		return 0
	}
	if waiting == 0 && !holds(fd) {
		return smallPipe
	}
	size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return 0
	}
	return int64(size)
}

// holds reports whether a pipe has buffers in use although no byte waits in it. Before Linux 6.15 a failed write leaves an
// empty buffer.
func holds(pipe int) bool {
	at := []unix.PollFd{{Fd: int32(pipe), Events: unix.POLLIN | unix.POLLOUT}}
	_, err := unix.Poll(at, 0)
	return err != nil || at[0].Revents&unix.POLLIN != 0
}

// keptPipe is how many bytes a pipe counts with that no descriptor keeps, but a waiting call. Once the pipes of a user have
// pipe-user-pages-soft pages, the kernel makes new ones small. If that setting limits the pages to at most mostSoft, its
// default, keptPipe is smallPipe.
var keptPipe = sync.OnceValue(func() int64 {
	text, _ := os.ReadFile("/proc/sys/fs/pipe-user-pages-soft")
	pages, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if pages > 0 && pages <= mostSoft {
		return smallPipe
	}
	return pipeBytes
})

const mostSoft = 16384

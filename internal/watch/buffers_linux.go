package watch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Without a cgroup, the kernel charges the bytes that wait in pipes and Unix sockets to no sandbox. The watch adds them to
// the memory of the sandbox's processes. It counts them only if the descriptors and sockets of the sandbox could hold more
// than what is left of its memory limit.
const (
	// buffersShare is the part of the limit, 1/buffersShare, below which buffers are ignored: pipes are not counted if they
	// can hold no more than that together, and neither are sockets.
	buffersShare = 16

	// pipeBytes is the most that a pipe holds: 16 pages. Programs cannot make a pipe larger.
	pipeBytes = 64 << 10
	// smallPipe is the size of a pipe made while its user had many pages in pipes. It is also what an empty pipe may keep.
	smallPipe = 8 << 10
	// fewKept is how many files waiting system calls may keep open without effect. Each further one counts as a pipe of
	// keptPipe bytes.
	fewKept = 512

	// fewClosed is how many closed sockets may have messages that still wait to be read. The kernel does not show the size of
	// these messages, so each further such socket counts with mostOfSender.
	fewClosed = 64
)

// buffers is what a Group knows of pipes and Unix sockets. Only Group.run uses it, except for the fields that mu guards.
type buffers struct {
	pipes, sockets counted

	mu    sync.Mutex
	kept  int64     // files that waiting calls of the programs may keep open, see Target.overTexts; guarded by mu
	ended time.Time // when programs were last ended because of buffers; guarded by mu

	used *os.File // /proc/net/sockstat of the sandbox's network namespace; nil: not opened
	list socketList
	none bool // the kernel does not list Unix sockets
}

// counted is the result of the last count of pipes, or of sockets.
type counted struct {
	paced
	bytes int64
	sure  bool // all processes have answered
}

// done records a count.
func (c *counted) done(used time.Duration, sum outcome[int64], sure bool) {
	c.bytes, c.sure, c.counted, c.at, c.rest = sum.value, sure, used, time.Now(), max(idleCPU, mappingsRest*sum.took)
}

// isDue reports whether due holds or the last count is long ago. Time alone has to be enough, because a program can hide the
// processor time that it uses in processes that live only shortly.
func (c *counted) isDue(used time.Duration, now time.Time) bool {
	return c.due(used, now) || now.Sub(c.at) >= max(objectsEvery, 3*c.rest)
}

// buffered returns the bytes in pipes and Unix sockets. If a count is due and they could hold more than room, it counts them.
// room is what is left of the memory limit, and buffered uses at least 1/buffersShare of the limit. Otherwise it returns the
// result of the last count.
func (w *Group) buffered(now map[string]seen, used time.Duration, room int64) int64 {
	b := &w.buffers
	if w.waits.Load() || len(now) < 2 { // the sandbox has only its init, which has no pipes or sockets of a program
		return 0
	}
	if b.pipes.at.IsZero() {
		b.pipes = counted{paced: paced{rest: idleCPU, at: time.Now()}}
		b.sockets = b.pipes
	}
	room = max(room, w.limits.MemoryBytes/buffersShare)
	if b.sockets.isDue(used, time.Now()) {
		w.countSockets(used, room)
	}
	if b.pipes.isDue(used, time.Now()) {
		w.countPipes(now, used, room)
	}
	return b.pipes.bytes + b.sockets.bytes
}

// bufferedStill counts again when the sandbox is above its limit because its buffers held more than room bytes at the last
// count. It returns the lower of held and the new count: bytes that moved between a buffer and a process meanwhile would
// otherwise count twice. If a process does not answer in time, bufferedStill stops the programs until all have answered, as
// exactly does.
func (w *Group) bufferedStill(now map[string]seen, used time.Duration, held, room int64) int64 {
	b := &w.buffers
	if b.sockets.bytes > 0 {
		w.countSockets(used, 0)
	}
	if b.pipes.bytes > 0 {
		w.countPipes(now, used, 0)
	}
	if b.pipes.bytes+b.sockets.bytes > room && !b.pipes.sure {
		w.exact.keep()
		defer w.exact.drop()
		w.noteOwn()
		pipes, most := newPipes(), room-b.sockets.bytes-w.keptByCalls()
		sum, ok := settle(most, settling{w.halt, w.taken, func() (int64, bool) {
			sum, sure, _ := w.inPipes(pipes)
			return sum, sure
		}, func() {}, w.quit})
		if !ok || sum <= most { // otherwise the caller ends the stopped programs
			w.goOn()
		}
		if !ok {
			return 0
		}
		b.pipes.bytes = sum + w.keptByCalls()
	}
	return min(held, b.pipes.bytes+b.sockets.bytes)
}

// keptByCalls returns the bytes in pipes that no descriptor keeps, but waiting system calls may keep.
func (w *Group) keptByCalls() int64 {
	w.buffers.mu.Lock()
	defer w.buffers.mu.Unlock()
	return max(w.buffers.kept-fewKept, 0) * keptPipe()
}

// countPipes counts the bytes in pipes, if the descriptors of the processes could hold more than room.
func (w *Group) countPipes(now map[string]seen, used time.Duration, room int64) {
	sure, took := true, time.Duration(0)
	count := timed(func() (sum int64) {
		kept := w.keptByCalls()
		most := kept
		for _, s := range now {
			most += w.descriptorsOf(s.path) * pipeBytes
		}
		if most <= room {
			return 0
		}
		sum, sure, took = w.inPipes(newPipes())
		return sum + kept
	})
	count.took += took
	w.buffers.pipes.done(used, count, sure)
}

// descriptorsOf returns how many descriptors a process has, by its path in /proc.
func (w *Group) descriptorsOf(path string) int64 {
	dir, path := unix.AT_FDCWD, path+"/fd"
	if w.outside {
		path = "/proc/" + path
	} else {
		dir = w.slot.Dirs[jail.DirProc]
	}
	var st unix.Stat_t
	if unix.Fstatat(dir, path, &st, 0) != nil {
		return 0
	}
	if st.Size > 0 {
		return st.Size
	}
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // before Linux 6.2 the size of the directory is 0
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	return int64(len(numbers(fd)))
}

// countSockets counts the bytes in Unix sockets, if the sockets of the sandbox could hold more than room.
func (w *Group) countSockets(used time.Duration, room int64) {
	if w.plain || w.buffers.none { // at tier L1 the network namespace is the host's, and so the list has all of its sockets
		w.buffers.sockets.done(used, outcome[int64]{}, true)
		return
	}
	sure := true
	count := timed(func() (sum int64) {
		if int64(w.socketsInUse())*mostOfSender() <= room {
			return 0
		}
		sum, sure = w.inSockets()
		return sum
	})
	w.buffers.sockets.done(used, count, sure)
	if !sure {
		w.buffers.sockets.rest = 0 // so that the next measurement counts them
	}
}

// socketsInUse returns the number of sockets of the sandbox, including closed ones whose messages still wait to be read.
func (w *Group) socketsInUse() int {
	b := &w.buffers
	if b.used == nil {
		if b.used = w.openNet("sockstat"); b.used == nil {
			return 0
		}
	}
	text := make([]byte, 512)
	n, _ := b.used.ReadAt(text, 0)
	return usedSockets(append(text[:n], '\n'))
}

// openNet opens a file of the sandbox's network namespace, as Target.openNet does.
func (w *Group) openNet(name string) *os.File {
	f, err := os.Open("/proc/" + strconv.Itoa(w.slot.PID()) + "/net/" + name)
	if err != nil {
		return nil
	}
	if w.slot.Ended() { // its pid may belong to another process now
		_ = f.Close()
		return nil
	}
	return f
}

// inSockets returns the bytes in Unix sockets. sure is false if they could not be listed this time.
func (w *Group) inSockets() (sum int64, sure bool) {
	b := &w.buffers
	if opened, late := b.list.open(w); !opened {
		return b.sockets.bytes, !late
	}
	before := w.unixSockets()
	queued, listed, err := b.list.read()
	if err != nil {
		b.none = errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)
		b.list.close()
		return 0, true
	}
	closed := max(min(before, w.unixSockets())-listed-fewClosed, 0)
	return queued + int64(closed)*mostOfSender(), true
}

// unixSockets returns the number of Unix sockets, including closed ones whose messages still wait to be read.
func (w *Group) unixSockets() int {
	f := w.openNet("protocols")
	if f == nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	var text bytes.Buffer
	_, _ = text.ReadFrom(f)
	return ofProtocol(text.Bytes(), "UNIX") + ofProtocol(text.Bytes(), "UNIX-STREAM")
}

// excessOfBuffers describes the memory of a sandbox above its limit, of which held bytes are in buffers.
func excessOfBuffers(memory, held int64) string {
	return fmt.Sprintf("%d MiB of memory, %d MiB of it in pipes and Unix sockets", memory>>20, held>>20)
}

// kept stores how many files waiting calls of the programs may keep open. began is when that count began. A count that began
// before the programs were last ended is ignored, because it may be of programs that are gone. w may be nil.
func (w *Group) kept(files int, began time.Time) {
	if w == nil {
		return
	}
	w.buffers.mu.Lock()
	defer w.buffers.mu.Unlock()
	if began.After(w.buffers.ended) {
		w.buffers.kept = int64(files)
	}
}

// forget drops the counts after the programs were ended, so that they do not count for later programs.
func (b *buffers) forget() {
	b.pipes.bytes, b.sockets.bytes = 0, 0
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept, b.ended = 0, time.Now()
}

// close closes the files. It may be called only after all measurements, and all readings of w.exact, have ended.
func (b *buffers) close() {
	if b.used != nil {
		_ = b.used.Close()
	}
	b.list.close()
}

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

// Without a cgroup, nothing in the kernel counts the bytes that wait in pipes and Unix sockets for a sandbox. The watch adds
// them to the memory of its processes. It looks at them only if the descriptors and sockets that the sandbox has could hold
// more than what is left of its limit.
const (
	// buffersShare: what pipes or sockets hold does not count while they can hold 1/buffersShare of the limit at most.
	buffersShare = 16

	// pipeBytes is the most that a pipe holds: 16 pages, as programs cannot make one larger.
	pipeBytes = 64 << 10
	// smallPipe is what a pipe holds that was made while its user had many pages in pipes, and what an empty pipe may keep.
	smallPipe = 8 << 10
	// fewKept is how many files may be kept open by calls alone. What is above that counts as small pipes.
	fewKept = 512

	// fewClosed is how many sockets may be closed whose messages wait to be read. The kernel does not tell of which size these
	// are, so above fewClosed each counts with the most.
	fewClosed = 64
)

// buffers is what a Group knows of pipes and Unix sockets. Used by Group.run alone, except for what mu guards.
type buffers struct {
	pipes, sockets counted

	mu    sync.Mutex
	kept  int64     // files that calls of the programs may keep open, see Target.overTexts; guarded by mu
	ended time.Time // when programs were last ended because of buffers; guarded by mu

	used *os.File // /proc/net/sockstat of the sandbox's network namespace; nil: not opened
	list socketList
	none bool // the kernel does not list Unix sockets
}

// counted is what a count has found last.
type counted struct {
	paced
	bytes int64
	sure  bool // all processes have answered
}

// done records a count.
func (c *counted) done(used time.Duration, sum outcome[int64], sure bool) {
	c.bytes, c.sure, c.counted, c.at, c.rest = sum.value, sure, used, time.Now(), max(idleCPU, mappingsRest*sum.took)
}

// isDue is due, and also true after some time: a program can hide the processor time of processes that end soon.
func (c *counted) isDue(used time.Duration, now time.Time) bool {
	return c.due(used, now) || now.Sub(c.at) >= max(objectsEvery, 3*c.rest)
}

// buffered returns the bytes in pipes and Unix sockets. It counts them if a count is due, and if they may take more than
// room and than a part of the limit.
func (w *Group) buffered(now map[string]seen, used time.Duration, room int64) int64 {
	b := &w.buffers
	if w.waits.Load() || len(now) < 2 { // there is no program: init holds nothing for it
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

// bufferedStill is called when the sandbox is above its limit because of held bytes in buffers, which may be room at most. It
// counts them again and returns the lower number: bytes that have moved between a buffer and a process must not count twice. If
// a process does not answer in time, the programs are stopped until all have answered, as for their exact memory.
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
		pipes, most := newPipes(), room-b.sockets.bytes-w.keptByCalls()
		sum, ok := settle(most, settling{w.halt, w.taken, func() (int64, bool) {
			sum, sure, _ := w.inPipes(pipes)
			return sum, sure
		}, w.quit})
		if !ok || sum <= most { // otherwise they are ended
			w.goOn()
		}
		if !ok {
			return 0
		}
		b.pipes.bytes = sum + w.keptByCalls()
	}
	return min(held, b.pipes.bytes+b.sockets.bytes)
}

// keptByCalls returns the bytes in pipes that only calls may keep.
func (w *Group) keptByCalls() int64 {
	w.buffers.mu.Lock()
	defer w.buffers.mu.Unlock()
	return max(w.buffers.kept-fewKept, 0) * keptPipe()
}

// countPipes counts the bytes in pipes, if they may take more than room.
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
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // before Linux 6.2
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	return int64(len(numbers(fd)))
}

// countSockets counts the bytes in Unix sockets, if they may take more than room.
func (w *Group) countSockets(used time.Duration, room int64) {
	if w.plain || w.buffers.none { // at tier L1 the kernel lists those of the host
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
		w.buffers.sockets.rest = 0 // count them at the next look
	}
}

// socketsInUse returns the number of sockets of the sandbox, including those that are closed and whose messages wait.
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

// unixSockets returns the number of Unix sockets, including those that are closed and whose messages wait.
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

// excessOfBuffers says what programs hold too much of that have so many bytes of memory, of which some are in buffers.
func excessOfBuffers(memory, held int64) string {
	return fmt.Sprintf("%d MiB of memory, %d MiB of it in pipes and Unix sockets", memory>>20, held>>20)
}

// kept takes how many files calls of the programs may keep open, of a count that has begun at that time. The programs of a count
// that began before an end may have been ended.
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

// forget is called when the programs have been ended. What was counted must not count for other programs.
func (b *buffers) forget() {
	b.pipes.bytes, b.sockets.bytes = 0, 0
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept, b.ended = 0, time.Now()
}

// close closes what is open. No look may be under way, nor the opening of the list.
func (b *buffers) close() {
	if b.used != nil {
		_ = b.used.Close()
	}
	b.list.close()
}

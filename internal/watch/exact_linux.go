package watch

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// exact reads proportional set sizes (PSS), in which pages that several processes share count once.
// The kernel adds them up under a lock of the process, which a program can hold: while a process
// with many mappings forks, for one. A process that does not answer in time counts with all of its
// resident memory, also in later sums until it answers.
//
// Pages that no mapping shows yet count besides: the arguments of an execve, of up to 6 MiB in each thread that has
// begun one. They are in the process's count of anonymous pages (RssAnon) and not in the sum over its mappings.
type exact struct {
	reads sync.WaitGroup
	mu    sync.Mutex
	busy  map[string]bool // processes whose reading has not ended; guarded by mu

	// answers has the sizes from readings that began after keep, also if they came late; -1: the process shows no size. If
	// answers is nil, sizes are not kept. round is the number of calls of keep. Both are guarded by mu.
	answers map[string]int64
	round   int
}

// keep stores the sizes of processes until drop, so that sums can use late ones, too: on a busy machine each may come
// late. The caller stops the programs meanwhile, so their sizes do not change.
func (e *exact) keep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers = map[string]int64{}
	e.round++
}

func (e *exact) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers = nil
}

// A sum waits for the first late process for mostPatience, and for each further one half as long, but
// at least leastPatience.
const (
	mostPatience  = 100 * time.Millisecond
	leastPatience = 5 * time.Millisecond
)

// sum adds up the exact memory of all processes, the kernel's memory for their mappings, and the memory that outlives its
// process. It leaves out files; see inFiles. A process that does not answer counts with all of its other resident memory and
// the most mappings that it may have. sure is false if there is such a process, memory that outlives its process, or a process
// that has begun or ended meanwhile. If sum is sure and above limit, it may leave out further processes.
func (w *Group) sum(limit int64) (sum int64, sure bool) {
	sum, sure = w.sumOfAll(w.processes, limit)
	return withLeft(sum, sure, limit, w.left)
}

// sumOfAll is sumOf for the processes that list returns. It also adds the memory of processes that have begun, ended or executed
// another program meanwhile. Of pages that they share with others, the sum has counted a part at these others, and may have
// counted the rest at no process: a program could have forks share its memory and end before they are read. Such a sum is not sure.
func (w *Group) sumOfAll(list func() []string, limit int64) (sum int64, sure bool) {
	processes := list()
	before := w.present(processes)
	if sum, sure = w.sumOf(processes, limit); sure && sum > limit {
		return sum, true
	}
	n := moved(before, w.present(list()))
	return sum + n, sure && n == 0
}

// present returns the resident memory of those of the processes that show some, by number, start time and layout. It leaves out
// processes that share their memory with their parent.
func (w *Group) present(processes []string) map[string]int64 {
	found := make(map[string]int64, len(processes))
	for _, p := range w.apart(slices.Clone(processes)) {
		if s, ok := w.see(p); ok && s.resident > 0 {
			found[p+" "+s.start+" "+s.layout] = s.resident
		}
	}
	return found
}

// moved returns the memory of processes that are in only one of two lists.
func moved(before, after map[string]int64) (sum int64) {
	for id, n := range before {
		if _, there := after[id]; !there {
			sum += n
		}
	}
	for id, n := range after {
		if _, there := before[id]; !there {
			sum += n
		}
	}
	return sum
}

// left returns the memory that outlives its process and is still there, and the most that was not seen of it. It adds memory of
// living processes that showed none at the last measurement and show none now.
func (w *Group) left() int64 {
	sum := w.outlived.still() + w.outlived.unseen()
	for id, h := range w.outlived.hides {
		p := numberOf(id)
		if s, ok := w.see(p); ok && p+" "+s.start == id && s.reserved > 0 {
			continue
		}
		if h.there() {
			sum += h.resident
		}
	}
	return sum
}

// sumOf is sum for some processes, without memory that outlives its process.
func (w *Group) sumOf(processes []string, limit int64) (sum int64, sure bool) {
	return w.exact.sum(w.apart(processes), limit, func(p string) (resident func() int64, size func() (int64, bool)) {
		now, _ := w.see(p)
		outside, path, id := w.outside, now.path, p+" "+now.start
		each, most := w.mapped.each(id), w.mapped.mostOf(id, now)
		resident = func() int64 { return w.residentOf(p, id, limit) }
		return resident, func() (int64, bool) {
			before := w.readFrom(outside, path, "status")
			rollup := w.readFrom(outside, path, "smaps_rollup")
			size, ok := sizeOf(before, rollup, w.readFrom(outside, path, "status"))
			size -= inFiles(rollup, w.plain)
			mapped := w.bytesOf(outside, path, each, most)
			w.mapped.note(id, mapped)
			return size + mapped, ok
		}
	})
}

// residentOf returns the resident memory of a process, without files (see inFiles), and the most memory that its mappings may
// take. For a process that has hidden its memory for too long it returns more than limit. For a process that has ended it
// returns 0, also if a new process has its number. Memory that outlives the process is counted by left.
func (w *Group) residentOf(p, id string, limit int64) int64 {
	s, ok := w.see(p)
	if !ok || p+" "+s.start != id {
		return 0
	}
	n := s.resident
	if most, ok := mostWithoutFiles(w.read(s.path, "status"), w.plain); ok {
		n = min(n, most)
	}
	n += w.mapped.mostOf(id, s)
	if w.blind[p] > mostBlind {
		n += max(limit, 0) + 1
	}
	return n
}

// withLeft adds the memory that outlives its process to a sum. That memory counts with all pages that were resident, although
// other processes may share them, and it may be there only because the watch itself is reading it. So the result is not sure.
func withLeft(sum int64, sure bool, limit int64, left func() int64) (int64, bool) {
	if sure && sum > limit {
		return sum, true
	}
	n := left()
	return sum + n, sure && n == 0
}

// sizeOf returns the PSS that a rollup shows, plus the anonymous pages that no mapping shows. before and after are the
// process's status before and after the rollup was read. The lower count of the two is used, so memory that the process
// took or freed meanwhile does not count as such pages.
func sizeOf(before, rollup, after string) (size int64, ok bool) {
	size, ok = field(rollup, "Pss")
	if mapped, shown := field(rollup, "Anonymous"); ok && shown {
		first, _ := field(before, "RssAnon")
		last, _ := field(after, "RssAnon")
		size += max(0, min(first, last)-mapped-inexact())
	}
	return size, ok
}

// inFiles returns the part of the PSS in a smaps_rollup that is pages of files. Pages of files on disks are those of the host,
// which takes them back when it needs memory. It cannot take back those that the process has locked (mlock), so these are not
// part of it. Files of the sandbox in memory (tmpfs) count by the size of its file systems, whether they are mapped or not, and files
// of the host do not count. The seccomp filter and Landlock refuse all other shared memory. At tier L1 (plain) the sandbox has
// no file systems of its own, so files in memory count here.
func inFiles(rollup string, plain bool) int64 {
	size, _ := field(rollup, "Pss_File")
	locked, _ := field(rollup, "Locked") // of all kinds of memory; RLIMIT_MEMLOCK is 1 MiB
	size = max(0, size-locked)
	if !plain {
		inMemory, _ := field(rollup, "Pss_Shmem")
		size += inMemory
	}
	return size
}

// withoutFiles returns rss, which has the resident memory of the processes in now. If that is above limit, it leaves out what an
// exact sum is sure to leave out; see inFiles. That is cheap to read, and no lock of a program delays it. Otherwise each
// measurement of a program that maps a large file would need an exact sum, after which the watch rests for up to 0.2 s. Other
// memory of the program could grow unseen meanwhile.
func (w *Group) withoutFiles(rss, limit int64, now map[string]seen) int64 {
	if rss <= limit {
		return rss
	}
	for _, s := range now {
		if most, ok := mostWithoutFiles(w.read(s.path, "status"), w.plain); ok {
			rss -= max(0, s.resident-most)
		}
	}
	return rss
}

// mostWithoutFiles returns the most memory that the exact sum can count for the pages of a process, by a text in the form of
// /proc/PID/status. ok is false if the text shows no memory.
func mostWithoutFiles(status string, plain bool) (size int64, ok bool) {
	size, ok = field(status, "RssAnon")
	onDisk, _ := field(status, "RssFile")
	locked, _ := field(status, "VmLck") // of all kinds of memory
	size += min(onDisk, locked) + inexact()
	if plain {
		inMemory, _ := field(status, "RssShmem")
		size += inMemory
	}
	return size, ok
}

// field returns a number of kilobytes from a file of /proc, in bytes.
func field(text, name string) (size int64, ok bool) {
	_, rest, found := strings.Cut(text, "\n"+name+":")
	f := strings.Fields(rest)
	if !found || len(f) == 0 {
		return 0, false
	}
	kb, err := strconv.ParseInt(f[0], 10, 64)
	return kb << 10, err == nil
}

// inexact returns by how much the kernel's count of anonymous pages may differ from the pages. Before Linux 6.16 it
// leaves out what each processor has counted lately.
var inexact = sync.OnceValue(func() int64 {
	var u unix.Utsname
	var major, minor int
	if unix.Uname(&u) == nil {
		_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	}
	if major > 6 || major == 6 && minor >= 16 {
		return 0
	}
	return uncounted() * int64(os.Getpagesize())
})

// uncounted returns by how much a counter of the kernel may differ from the sum of what all processors have added to it, for
// counters of which each processor keeps a part (percpu_counter). The server may run on fewer processors than the host has.
var uncounted = sync.OnceValue(func() int64 {
	text, _ := os.ReadFile("/sys/devices/system/cpu/online")
	n := max(processorsIn(string(text)), runtime.NumCPU())
	return int64(n * max(32, 2*n))
})

// processorsIn returns how many processors a list such as 0-3,6 has.
func processorsIn(list string) (n int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err == nil && errTo == nil && from <= to {
			n += to - from + 1
		}
	}
	return n
}

// sum adds up the memory of processes. open returns two functions for a process: one for its resident memory, and one for
// its exact size, which may block. sure is false if the exact size of a process could not be read in time. Once the exact sizes
// alone are above limit, sum returns these, which is sure: a program must not hide the others behind one that does not answer.
func (e *exact) sum(processes []string, limit int64, open func(p string) (resident func() int64, size func() (int64, bool))) (sum int64, sure bool) {
	sure = true
	known, patience := int64(0), mostPatience
	for _, p := range processes {
		resident, exactSize := open(p)
		size, how := e.read(p, exactSize, patience)
		if how == late {
			patience = max(patience/2, leastPatience)
		}
		if how == exactly {
			known += size
		} else {
			size = resident() // called late, because the process may have ended since it was listed
		}
		if known > limit {
			return known, true
		}
		sum, sure = sum+size, sure && (how == exactly || how == nothing)
	}
	return sum, sure
}

// reading is how the reading of a size has ended.
type reading int

const (
	exactly reading = iota
	nothing         // the process shows no size
	late            // it was not read in time
	pending         // an earlier reading has not ended
)

// read returns the size of a process.
func (e *exact) read(p string, exactSize func() (int64, bool), patience time.Duration) (size int64, how reading) {
	n, round, how := e.take(p)
	if how == late {
		answer := make(chan int64, 1)
		e.reads.Go(func() {
			size, ok := exactSize()
			if !ok {
				size = -1
			}
			e.give(p, round, size)
			answer <- size
		})
		var done bool
		if n, done = await(answer, patience); done {
			how = exactly
		}
	}
	if how != exactly {
		return 0, how
	}
	if n < 0 {
		return 0, nothing
	}
	return n, exactly
}

// take returns a stored answer with exactly, or pending if a reading of the process is under way. Otherwise it marks a
// reading as begun and returns late; the caller then reads the size and calls give.
func (e *exact) take(p string) (answer int64, round int, how reading) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n, kept := e.answers[p]; kept {
		return n, 0, exactly
	}
	if e.busy[p] {
		return 0, 0, pending
	}
	if e.busy == nil {
		e.busy = map[string]bool{}
	}
	e.busy[p] = true
	return 0, e.round, late
}

// give ends a reading. It stores the answer if the reading began in the current round; see keep.
func (e *exact) give(p string, round int, answer int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.busy, p)
	if e.answers != nil && e.round == round {
		e.answers[p] = answer
	}
}

package watch

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// mostBlind is how many measurements in a row may fail to find the memory of a process whose first thread has ended. Threads
// that replace each other quickly can be missed by some measurements, but not by so many. A measurement does not count if it
// has read all threads and none of them had memory: then the process is ending, and the kernel may take seconds to free its
// memory. It counts nevertheless if the memory is known to be in use; see outlived.holds.
const mostBlind = 50

// seen is what /proc shows of a process.
type seen struct {
	path     string // in /proc, of a task that shows the memory of the process
	start    string // time at which it started
	times    times
	threads  int
	resident int64 // bytes
	reserved int64 // bytes of address space
	mapped   int64 // bytes of its mappings, when they were last counted; set by mapped.look
	most     int64 // the most bytes that its mappings can take; set by mapped.look
	blind    bool  // its first thread has ended, and no other thread showed its memory
	ends     bool  // it is blind, and all of its threads were read
	stopped  bool  // by a signal
	runs     bool  // its first thread does, or waits for a processor, or waits where no signal reaches it
	parent   string
	layout   string // where the kernel has put its program, stack and arguments: at random for each program, and the same for a fork
}

// see reads a process. A process whose first thread has ended, or is ending, lives on in its other threads, and
// the kernel shows its memory only at these.
func (w *Group) see(p string) (s seen, ok bool) {
	s.path = p
	first, ok := readStat(w.read(p, "stat"))
	if !ok {
		return s, false
	}
	s.start = first[22-3]
	s.times = times{time.Duration(first.number(14)+first.number(15)) * clockTick, time.Duration(first.number(16)+first.number(17)) * clockTick}
	s.threads, s.parent, s.stopped = int(first.number(20)), first[4-3], first[0] == "T"
	s.runs = first[0] == "R" || first[0] == "D"
	s.resident, s.reserved, s.layout = first.memory()
	if s.reserved > 0 || s.threads < 2 {
		return s, true
	}
	s.blind = true
	read := 0
	for _, t := range w.threads(p) {
		path := p + "/task/" + t
		other, ok := readStat(w.read(path, "stat"))
		switch {
		case !ok:
		case other.number(23) == 0:
			read++
		default:
			s.path, s.blind = path, false
			s.resident, s.reserved, s.layout = other.memory()
			return s, true
		}
	}
	s.ends = read >= s.threads
	return s, true
}

// hidden returns in how many measurements a process has hidden its memory since it last showed some. s is the present one;
// see mostBlind for which ones count.
func (w *Group) hidden(p string, s seen) int {
	switch {
	case !s.blind:
		return 0
	case s.ends && !w.outlived.holds(p+" "+s.start):
		return w.blind[p]
	default:
		return w.blind[p] + 1
	}
}

// stat is the text of a stat file of /proc, from the third field on.
type stat []string

func readStat(text string) (s stat, ok bool) {
	s = strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // the program can choose the name before it
	return s, len(s) >= 22
}

// number returns a field, which is counted as in proc(5).
func (s stat) number(i int) int64 {
	n, _ := strconv.ParseInt(s[i-3], 10, 64)
	return n
}

// memory returns the bytes of resident memory and of address space, and the layout.
func (s stat) memory() (resident, reserved int64, layout string) {
	if len(s) > 48-3 {
		layout = s[26-3] + " " + s[28-3] + " " + s[48-3]
	}
	return s.number(24) * int64(os.Getpagesize()), s.number(23), layout
}

// processes lists the processes in the sandbox. The numbers are those of the sandbox's pid
// namespace, or of the host's at tier L1 and if some processes are hidden.
func (w *Group) processes() []string {
	if w.outside {
		return descendants(strconv.Itoa(w.slot.PID()), nil)
	}
	dir := w.slot.Dirs[jail.DirProc]
	if _, err := unix.Seek(dir, 0, 0); err != nil {
		return nil
	}
	return numbers(dir)
}

// threads lists the threads of a process.
func (w *Group) threads(p string) []string {
	if w.outside {
		names, _ := readNames("/proc/" + p + "/task")
		return names
	}
	dir, err := unix.Openat(w.slot.Dirs[jail.DirProc], p+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(dir) }()
	return numbers(dir)
}

// numbers lists the entries of a directory of /proc that are numbers.
func numbers(dir int) (found []string) {
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if n <= 0 || err != nil {
			return found
		}
		var names []string
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
		for _, name := range names {
			if name[0] >= '1' && name[0] <= '9' {
				found = append(found, name)
			}
		}
	}
}

// read reads a file of a process or thread. It returns "" if it cannot.
func (w *Group) read(pid, name string) string { return w.readFrom(w.outside, pid, name) }

// readFrom is read from the host's /proc if outside is set, and otherwise from the sandbox's. It may
// be called concurrently.
func (w *Group) readFrom(outside bool, pid, name string) string {
	if outside {
		b, err := os.ReadFile("/proc/" + pid + "/" + name)
		if err != nil {
			return ""
		}
		return string(b)
	}
	fd, err := unix.Openat(w.slot.Dirs[jail.DirProc], pid+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

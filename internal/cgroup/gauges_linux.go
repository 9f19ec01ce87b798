package cgroup

import (
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gauges reads the statistics files of a group. If a group is read often, it keeps them
// open: a reused group serves many runs and is read twice in each.
type gauges struct {
	reads int
	open  map[string]int
}

// oftenReads is the number of reads of a group that serves a single run. After more reads
// the files are kept open.
const oftenReads = 3

// number reads a whole number as directory.number does.
func (g *gauges) number(h *hierarchy, name, key string) int64 {
	fd, kept := g.open[name]
	if !kept {
		if g.reads <= oftenReads {
			return h.number(name, key)
		}
		var err error
		if fd, err = h.open(name, unix.O_RDONLY); err != nil {
			return 0
		}
		if g.open == nil {
			g.open = map[string]int{}
		}
		g.open[name] = fd
	}
	text, err := h.readAll(fd, name)
	if err != nil {
		return 0
	}
	return numberIn(text, key)
}

// readQuickly reads the nanoseconds of an open cpuacct.usage, 0 if it cannot be read. A raw
// call does not wake the runtime's monitor thread, as others do in a process that rests.
// The kernel adds up one number for each processor and never waits.
func readQuickly(fd int) time.Duration {
	var buf [32]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&buf)), unsafe.Sizeof(buf), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(numberIn(strings.TrimSpace(string(buf[:n])), ""))
}

// close closes the descriptors.
func (g *gauges) close() {
	for _, fd := range g.open {
		_ = unix.Close(fd)
	}
	*g = gauges{}
}

package cgroup

import (
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

// close closes the descriptors.
func (g *gauges) close() {
	for _, fd := range g.open {
		_ = unix.Close(fd)
	}
	*g = gauges{}
}

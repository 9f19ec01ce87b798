package cgroup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// files opens the files of a group. Those of a group that is used again or read often stay open,
// because opening costs more than reading or writing. At most about a dozen do.
type files struct {
	reads  int
	reused bool // Clear has prepared the group for another use
	open   map[openFile]int
	tasks  []*os.File // kept for Entry
}

type openFile struct {
	in    *hierarchy
	name  string
	flags int
}

// oftenReads is the number of reads of a group that serves a single run.
const oftenReads = 3

// stays reports whether a file that is opened now stays open.
func (f *files) stays(h *hierarchy, flags int) bool {
	if h.plain && flags != unix.O_RDONLY { // unlike the kernel's, such a file must be opened anew to be replaced
		return false
	}
	return f.reused || f.reads > oftenReads
}

// with calls use with the descriptor of a file of the group.
func (f *files) with(h *hierarchy, name string, flags int, use func(fd int) error) error {
	key := openFile{h, name, flags}
	fd, kept := f.open[key]
	if !kept {
		var err error
		if fd, err = h.open(name, flags); err != nil {
			return h.fail("open", name, err)
		}
		if f.stays(h, flags) {
			if f.open == nil {
				f.open = map[openFile]int{}
			}
			f.open[key] = fd
		} else {
			defer unix.Close(fd)
		}
	}
	return use(fd)
}

// read is [directory.read].
func (f *files) read(h *hierarchy, name string) (text string, err error) {
	err = f.with(h, name, unix.O_RDONLY, func(fd int) (bad error) {
		text, bad = h.readAll(fd, name)
		return bad
	})
	return text, err
}

// number is [directory.number].
func (f *files) number(h *hierarchy, name, key string) int64 {
	text, err := f.read(h, name)
	if err != nil {
		return 0
	}
	return numberIn(text, key)
}

// write is [directory.write].
func (f *files) write(h *hierarchy, name, value string) error {
	return f.with(h, name, unix.O_WRONLY, func(fd int) error { return h.writeAll(fd, name, value) })
}

// set is [directory.set].
func (f *files) set(h *hierarchy, name, value string) error {
	return f.with(h, name, unix.O_RDWR, func(fd int) error { return h.setAll(fd, name, value) })
}

// entry opens a file of each hierarchy for writing. kept says that the files stay open.
func (f *files) entry(all []*hierarchy, name string) (tasks []*os.File, kept bool, err error) {
	if f.tasks != nil {
		return f.tasks, true, nil
	}
	for _, h := range all {
		fd, bad := h.open(name, unix.O_WRONLY)
		if bad != nil {
			err = h.fail("open", name, bad)
			for _, t := range tasks {
				err = errors.Join(err, t.Close())
			}
			return nil, false, err
		}
		tasks = append(tasks, os.NewFile(uintptr(fd), name))
	}
	if f.reused {
		f.tasks = tasks
	}
	return tasks, f.reused, nil
}

// leave closes the files in one hierarchy, and those for entry.
func (f *files) leave(h *hierarchy) {
	for key, fd := range f.open {
		if key.in == h {
			_ = unix.Close(fd)
			delete(f.open, key)
		}
	}
	f.closeTasks()
}

func (f *files) closeTasks() {
	for _, t := range f.tasks {
		_ = t.Close()
	}
	f.tasks = nil
}

// close closes all files.
func (f *files) close() {
	for _, fd := range f.open {
		_ = unix.Close(fd)
	}
	f.closeTasks()
	*f = files{}
}

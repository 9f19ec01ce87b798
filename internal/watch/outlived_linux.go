package watch

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// outlived counts memory that has outlived its process. The kernel frees the memory of a process when the process ends
// or executes another program, unless another process reads it through /proc at that time. Such a read can take
// seconds, and no list of processes shows that memory meanwhile.
//
// So the watch keeps the pagemap file of each process open. It does not keep the memory, but tells whether it is still
// there.
type outlived struct {
	kept map[string]*held // of the living processes, by number and start time
	left []*held          // that their processes have left

	kinFrom time.Time // earliest time of the next search for the host's process numbers
}

// held is the memory of one process.
type held struct {
	pagemap  int    // descriptor; -1: the memory is that of the parent
	layout   string // see seen.layout
	parent   string
	resident int64 // bytes, when it was last seen
}

// there reports whether the memory is still there. The kernel answers an unaligned read of a pagemap with EINVAL if
// so, and otherwise with the end of the file. It takes no lock for that.
func (h *held) there() bool {
	_, err := unix.Pread(h.pagemap, make([]byte, 1), 0)
	return err == unix.EINVAL
}

func (h *held) close() {
	if h.pagemap >= 0 {
		_ = unix.Close(h.pagemap)
	}
}

// kin tells which processes share their memory (CLONE_VM), as parent and child do from vfork to execve.
type kin interface {
	open(s seen) (pagemap int, same bool, err error) // same: the process still had the same memory afterwards
	shares(child, parent string) (shares, known bool)
}

// look takes the living processes, by number and start time. It returns how much memory of others is still there.
func (o *outlived) look(now map[string]seen, k kin) (sum int64) {
	next := make(map[string]*held, len(now))
	layouts := make(map[string]string, len(now))
	for id, s := range now {
		pid, _, _ := strings.Cut(id, " ")
		layouts[pid] = s.layout
	}
	for id, s := range now {
		h := o.kept[id]
		switch {
		case s.blind:
			if h != nil {
				next[id] = h
			}
			continue
		case s.reserved == 0: // it has ended
			continue
		case h != nil && h.layout == s.layout && (h.pagemap >= 0 || h.parent == s.parent):
			h.resident = s.resident
			next[id] = h
			continue
		}
		pid, _, _ := strings.Cut(id, " ")
		if h := hold(pid, s, layouts[s.parent], k); h != nil {
			next[id] = h
		}
	}
	for id, h := range o.kept {
		if next[id] != h {
			o.left = append(o.left, h)
		}
	}
	o.kept = next
	still := o.left[:0]
	for _, h := range o.left {
		if h.pagemap < 0 || !h.there() {
			h.close()
			continue
		}
		sum += h.resident
		still = append(still, h)
	}
	clear(o.left[len(still):])
	o.left = still
	return sum
}

// hold opens the pagemap of a process. It returns nil if it cannot, or if it is not known yet whether the process has
// memory of its own. A process with another layout than its parent has.
func hold(pid string, s seen, parentLayout string, k kin) *held {
	if s.layout == parentLayout {
		shares, known := k.shares(pid, s.parent)
		if !known {
			return nil
		}
		if shares {
			return &held{pagemap: -1, layout: s.layout, parent: s.parent}
		}
	}
	fd, same, err := k.open(s) // after the comparison: memory that a process shares can only become its own
	if err != nil {
		return nil
	}
	if !same {
		_ = unix.Close(fd)
		return nil
	}
	return &held{pagemap: fd, layout: s.layout, parent: s.parent, resident: s.resident}
}

// forget forgets the living processes, whose numbers will be others.
func (o *outlived) forget() {
	for _, h := range o.kept {
		h.close()
	}
	o.kept = nil
}

// close closes all descriptors.
func (o *outlived) close() {
	o.forget()
	for _, h := range o.left {
		h.close()
	}
	o.left = nil
}

// family is the kin of one look.
type family struct {
	w       *Group
	numbers map[string]int // the host's process numbers, by those of the sandbox; nil: not searched for
}

func (f *family) open(s seen) (fd int, same bool, err error) {
	if f.w.outside {
		fd, err = unix.Open("/proc/"+s.path+"/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	} else {
		fd, err = unix.Openat(f.w.slot.Dirs[jail.DirProc], s.path+"/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return -1, false, err
	}
	now, ok := readStat(f.w.read(s.path, "stat"))
	if !ok {
		return fd, false, nil
	}
	_, _, layout := now.memory()
	return fd, layout == s.layout, nil
}

// shares is not known where the kernel does not compare processes.
func (f *family) shares(child, parent string) (shares, known bool) {
	if f.numbers == nil {
		if time.Now().Before(f.w.outlived.kinFrom) {
			return false, false
		}
		began := time.Now()
		f.numbers = f.w.hostNumbers()
		f.w.outlived.kinFrom = time.Now().Add(exactRest * time.Since(began))
	}
	a, b := f.numbers[child], f.numbers[parent]
	if a == 0 || b == 0 {
		return false, false
	}
	const kcmpMemory = 1
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpMemory, 0, 0, 0)
	if errno != 0 || r != 0 {
		return false, errno == 0
	}
	for _, p := range []string{child, parent} { // first threads that have ended have the same memory: none
		if now, ok := readStat(f.w.read(p, "stat")); !ok || now.number(23) == 0 {
			return false, true
		}
	}
	return true, true
}

// apart leaves out processes that share their memory with their parent.
func (w *Group) apart(processes []string) []string {
	all := make(map[string]seen, len(processes))
	for _, p := range processes {
		if s, ok := w.see(p); ok {
			all[p] = s
		}
	}
	var f *family
	return slices.DeleteFunc(processes, func(p string) bool {
		if s := all[p]; s.layout == "" || s.layout != all[s.parent].layout {
			return false
		}
		if f == nil {
			f = &family{w: w, numbers: w.hostNumbers()}
		}
		shares, _ := f.shares(p, all[p].parent)
		return shares
	})
}

// hostNumbers returns the host's number of each process of the sandbox.
func (w *Group) hostNumbers() map[string]int {
	found := map[string]int{}
	for _, p := range descendants(strconv.Itoa(w.slot.PID()), nil) {
		n, err := strconv.Atoi(p)
		if err != nil {
			continue
		}
		if w.outside {
			found[p] = n
			continue
		}
		status, _ := os.ReadFile(filepath.Join("/proc", p, "status"))
		_, rest, _ := strings.Cut(string(status), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		if numbers := strings.Fields(line); len(numbers) > 0 {
			found[numbers[len(numbers)-1]] = n
		}
	}
	return found
}

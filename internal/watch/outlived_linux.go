package watch

import (
	"cmp"
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
	kept map[string]*held // of the living processes, by number and start time; processes that share their memory have the same value
	left []*held          // memory whose processes have ended

	hides map[string]*held // part of kept: processes that showed no memory at the last measurement, see seen.blind
	rows  map[string]*row  // memory in kept, by layout

	kinFrom time.Time // earliest time of the next search for the host's process numbers
	pidNS   *os.File  // the sandbox's pid namespace; nil: not opened
}

// held is the memory of a process, or of several that share it.
type held struct {
	pagemap  int    // descriptor
	layout   string // see seen.layout
	resident int64  // bytes, when it was last seen; those of its mappings, when they were last counted, included
	unseen   int64  // the most bytes that it may have besides, see unseenOf
	shown    string // number of a process that showed it when rows were last arranged
}

// grown is how much memory a process may take between two measurements.
const grown = 32 << 20

// unseenOf returns the most memory that a process may have besides seen.resident and seen.mapped, if it ends before the next
// measurement: its page tables, mappings that were not counted, and what it takes meanwhile. Most processes have far less. The
// watch therefore adds it only to find out whether a sandbox may be above its limit. It then stops the programs, and memory that
// no call reads any more is free.
func unseenOf(s seen) int64 {
	return s.reserved/tableShare + max(s.most-s.mapped, 0) + grown
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
		h.pagemap = -1
	}
}

// kin tells which processes share their memory (CLONE_VM), as parent and child do from vfork to execve.
type kin interface {
	open(s seen) (pagemap int, same bool, err error)   // same: the process still had the same memory afterwards
	compare(one, other string) (order int, known bool) // 0: they share it; otherwise which is first, in an order of the kernel
}

// holds reports whether the pagemap of a process, by number and start time, was open at the last measurement, and its memory
// is still there.
func (o *outlived) holds(id string) bool {
	h := o.kept[id]
	return h != nil && h.there()
}

// look updates outlived for the living processes, given by number and start time. It returns the memory that outlives its
// process, and that of processes which show none now although it is still there.
func (o *outlived) look(now map[string]seen, k kin) (sum int64) {
	next, fresh := make(map[string]*held, len(now)), make([]string, 0, len(now))
	o.hides = map[string]*held{}
	for id, s := range now {
		h := o.kept[id]
		switch {
		case s.blind:
			if h != nil {
				next[id], o.hides[id] = h, h
			}
		case s.reserved == 0: // it has ended
		case h != nil && h.layout == s.layout:
			h.resident, h.unseen = s.resident+s.mapped, unseenOf(s)
			next[id] = h
		default:
			fresh = append(fresh, id)
		}
	}
	if len(fresh) > 0 {
		o.hold(fresh, now, next, k)
	}
	living, shown := make(map[*held]bool, len(next)), map[*held]bool{}
	for id, h := range next {
		living[h] = true
		shown[h] = shown[h] || o.hides[id] == nil
	}
	for id, h := range o.hides {
		if shown[h] { // another process shares this memory and shows it, or is in o.hides already
			delete(o.hides, id)
		}
		shown[h] = true // memory that several processes hide counts once
	}
	for _, h := range o.kept {
		if !living[h] {
			living[h] = true // once
			o.left = append(o.left, h)
		}
	}
	o.kept = next
	for _, h := range o.hides {
		if h.there() {
			sum += h.resident
		}
	}
	return sum + o.still()
}

// still returns the size of the memory that outlives its process, and closes the pagemaps of memory that is gone.
func (o *outlived) still() (sum int64) {
	still := o.left[:0]
	for _, h := range o.left {
		if !h.there() {
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

// unseen returns the most memory of processes that have ended which the watch has not seen; see unseenOf.
func (o *outlived) unseen() (sum int64) {
	for _, h := range o.left {
		sum += h.unseen
	}
	return sum
}

// outsideOf is the parent of a process whose parent is in no pid namespace of the sandbox. A program has none: when its parent ends, init
// becomes the parent.
const outsideOf = "0"

// hold adds the memory of fresh processes to next, parents before children.
func (o *outlived) hold(fresh []string, now map[string]seen, next map[string]*held, k kin) {
	ids := make(map[string]string, len(now)) // by number
	for id := range now {
		ids[numberOf(id)] = id
	}
	o.arrange(now, next)
	slices.SortFunc(fresh, func(a, b string) int {
		x, y := now[a].start, now[b].start
		return cmp.Or(len(x)-len(y), strings.Compare(x, y), len(a)-len(b), strings.Compare(a, b))
	})
	for _, id := range fresh {
		s, pid := now[id], numberOf(id)
		if s.parent == outsideOf { // init; or one that makes a fork, see fork.c: its memory is that of the fork server, and stays
			continue
		}
		r := o.rows[s.layout]
		if r == nil {
			r = &row{}
			o.rows[s.layout] = r
		}
		var h *held
		var shares, known bool
		at := -1
		if parent := ids[s.parent]; now[parent].layout == s.layout { // a process that shares memory with others shares it with its parent, while that lives
			var order int
			order, known = k.compare(pid, s.parent)
			h, shares = next[parent], order == 0
		} else {
			h, at, known = r.find(pid, k)
			shares = h != nil
		}
		if !known {
			continue
		}
		if !shares {
			if h = open(s, k); h != nil { // after the comparison: memory that a process shares can only become its own
				r.add(h, pid, at)
			}
		}
		if h != nil {
			next[id] = h
		}
	}
}

// arrange drops from rows what no process shows, and adds what is in none.
func (o *outlived) arrange(now map[string]seen, next map[string]*held) {
	shown := make(map[*held]string, len(next))
	for id, h := range next {
		if !now[id].blind {
			shown[h] = numberOf(id)
		}
	}
	for layout, r := range o.rows {
		if r.keep(shown); len(r.sorted)+len(r.rest) == 0 {
			delete(o.rows, layout)
		}
	}
	if o.rows == nil {
		o.rows = map[string]*row{}
	}
	for h, pid := range shown { // what keep has left: memory whose process showed none before
		if o.rows[h.layout] == nil {
			o.rows[h.layout] = &row{}
		}
		o.rows[h.layout].add(h, pid, -1)
	}
}

// numberOf returns the process number in a number and start time.
func numberOf(id string) string {
	pid, _, _ := strings.Cut(id, " ")
	return pid
}

// open opens the pagemap of a process. It returns nil if it cannot.
func open(s seen, k kin) *held {
	fd, same, err := k.open(s)
	if err != nil {
		return nil
	}
	if !same {
		_ = unix.Close(fd)
		return nil
	}
	return &held{pagemap: fd, layout: s.layout, resident: s.resident + s.mapped, unseen: unseenOf(s)}
}

// forget drops the living processes, because they will have other numbers.
func (o *outlived) forget() {
	for _, h := range o.kept {
		h.close()
	}
	o.kept, o.hides, o.rows = nil, nil, nil
}

// close closes all descriptors.
func (o *outlived) close() {
	o.forget()
	for _, h := range o.left {
		h.close()
	}
	o.left = nil
	_ = o.pidNS.Close()
}

// family implements kin for the processes of a Group, during one look.
type family struct {
	w       *Group
	numbers map[string]int // the host's process numbers, by those of the sandbox; nil: not read yet
	atOnce  bool           // read them even if that was done a short time ago
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

// compare returns false for known where the kernel does not compare processes, and for processes that have ended or
// executed another program.
func (f *family) compare(one, other string) (order int, known bool) {
	a, b := f.hostNumber(one), f.hostNumber(other)
	if a == 0 || b == 0 {
		return 0, false
	}
	const kcmpMemory = 1
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpMemory, 0, 0, 0)
	if errno != 0 {
		return 0, false
	}
	x, there := f.w.see(one)
	y, too := f.w.see(other)
	if !there || !too || x.reserved == 0 || x.layout != y.layout { // without memory all have the same: none
		return 0, false
	}
	return []int{0, -1, 1}[min(r, 2)], true
}

// hostNumber returns the host's number of a thread of a process that has memory. It returns 0 if that is not known yet.
func (f *family) hostNumber(p string) int {
	s, _ := f.w.see(p)
	if n := f.w.translate(filepath.Base(s.path)); n > 0 {
		return n
	}
	if f.numbers == nil {
		if !f.atOnce && time.Now().Before(f.w.outlived.kinFrom) {
			return 0
		}
		began := time.Now()
		f.numbers = f.w.hostNumbers()
		f.w.outlived.kinFrom = time.Now().Add(exactRest * time.Since(began))
	}
	return f.numbers[p]
}

// translate returns the host's number of a thread, or 0 if the kernel does not translate it, which Linux 6.11 does.
func (w *Group) translate(thread string) int {
	n, err := strconv.Atoi(thread)
	if err != nil || w.outside {
		return n
	}
	o := &w.outlived
	if o.pidNS == nil {
		if o.pidNS, err = os.Open(filepath.Join("/proc", strconv.Itoa(w.slot.PID()), "ns", "pid")); err != nil {
			return 0
		}
	}
	const numberFromNamespace = 0x8004b706 // NS_GET_PID_FROM_PIDNS, linux/nsfs.h
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, o.pidNS.Fd(), numberFromNamespace, uintptr(n))
	if errno != 0 {
		return 0
	}
	return int(r)
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
			f = &family{w: w, atOnce: true}
		}
		order, known := f.compare(p, all[p].parent)
		return known && order == 0
	})
}

// hostNumbers returns the host's number of a thread that has memory, for each process of a sandbox with a pid namespace.
func (w *Group) hostNumbers() map[string]int {
	found := map[string]int{}
	for _, p := range descendants(strconv.Itoa(w.slot.PID()), nil) {
		n, err := strconv.Atoi(p)
		if err != nil {
			continue
		}
		status, _ := os.ReadFile(filepath.Join("/proc", p, "status"))
		if !strings.Contains(string(status), "\nVmSize:") { // its first thread has ended, or is ending
			n = lastThread(p, n)
		}
		_, rest, _ := strings.Cut(string(status), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		if numbers := strings.Fields(line); len(numbers) > 0 {
			found[numbers[len(numbers)-1]] = n
		}
	}
	return found
}

// lastThread returns a thread of a process that has memory, or n.
func lastThread(p string, n int) int {
	tasks, _ := readNames(filepath.Join("/proc", p, "task"))
	for _, t := range tasks {
		text, _ := os.ReadFile(filepath.Join("/proc", p, "task", t, "stat"))
		if s, ok := readStat(string(text)); ok && s.number(23) > 0 {
			if tid, err := strconv.Atoi(t); err == nil {
				return tid
			}
		}
	}
	return n
}

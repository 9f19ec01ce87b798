package watch

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// locks are those of a text in the form of /proc/locks.
type locks struct {
	held  map[*Target]int // in the file systems of sandboxes
	byPID map[int]int     // elsewhere, by the process that has taken it or waits for it, without those of whole files
	whole map[int]int     // elsewhere, of whole files (flock), by the process that has taken it
	lines int

	files   map[string]bool  // "device:inode" of the files that the locks in whole are on
	unowned int              // locks in whole whose process belongs to no sandbox; set by add
	mapped  map[*Target]int  // locks that a sandbox may hold through mappings of files, besides held; set by addUnowned
	kept    map[*Target]bool // sandboxes for which addUnowned has used the last count; set by addUnowned
}

// fewLocks is how many locks a sandbox may always hold, also if all sandboxes together hold too many: otherwise a caller
// that has many sandboxes could spread its locks, and have an ordinary program of another caller ended.
const fewLocks = 256

// countLocks counts the locks of a text in the form of /proc/locks. The kernel writes
// the list in pieces and finds its position by the line number. If locks are added meanwhile, it
// writes a lock twice; countLocks counts it once. Two record locks of one process are never equal, because
// a process has one descriptor table. Locks of whole files that are equal may belong to several open files of one
// process, so each line counts.
//
// devices are those of the sandboxes' own file systems. Programs of others hold no locks there. countLocks stops when a
// sandbox that is not being ended holds too many there: reading on takes seconds while programs take locks.
func countLocks(r io.Reader, devices map[uint64]*Target) locks {
	l := locks{held: map[*Target]int{}, byPID: map[int]int{}, whole: map[int]int{}, files: map[string]bool{}}
	seen, seed := map[uint64]struct{}{}, maphash.MakeSeed()
	text := bufio.NewScanner(r)
	for text.Scan() && l.lines < lockLines {
		_, lock, ok := bytes.Cut(text.Bytes(), []byte(": ")) // the text after the line number
		f := bytes.Fields(lock)
		if len(f) > 0 && string(f[0]) == "->" { // a request that waits for the lock above
			f = f[1:]
		}
		if !ok || len(f) < 5 {
			continue
		}
		l.lines++
		whole := string(f[0]) == "FLOCK"
		if !whole {
			id := maphash.Bytes(seed, lock)
			if _, again := seen[id]; again {
				continue
			}
			seen[id] = struct{}{}
		}
		pid, err := strconv.Atoi(string(f[3]))
		switch s := devices[deviceIn(f[4])]; {
		case s != nil:
			if l.held[s]++; l.held[s] > maxLocks && !s.ending.Load() {
				return l
			}
		case err != nil:
		case whole:
			l.whole[pid]++
			l.files[string(f[4])] = true
		default:
			l.byPID[pid]++
		}
	}
	return l
}

// deviceIn returns the device in "major:minor:inode", of which the first two are hexadecimal.
func deviceIn(file []byte) uint64 {
	parts := bytes.Split(file, []byte(":"))
	if len(parts) != 3 {
		return 0
	}
	major, _ := strconv.ParseUint(string(parts[0]), 16, 32)
	minor, _ := strconv.ParseUint(string(parts[1]), 16, 32)
	return unix.Mkdev(uint32(major), uint32(minor))
}

// add adds the locks in byPID and whole to those that sandboxes hold. A lock of a whole file belongs to an open file. Other
// processes and mappings may keep that file after the process that has taken the lock has ended. A process of another
// sandbox may then have its number. So these locks count at most up to the number of descriptors of that sandbox.
func (l *locks) add(ownerOf func(pid int) *Target, descriptors func(*Target) int) {
	for pid, n := range l.byPID {
		if s := ownerOf(pid); s != nil {
			l.held[s] += n
		}
	}
	whole := map[*Target]int{}
	for pid, n := range l.whole {
		if s := ownerOf(pid); s != nil {
			whole[s] += n
		} else {
			l.unowned += n
		}
	}
	for s, n := range whole {
		if l.held[s]+n > maxLocks || l.lines > allLocks {
			l.held[s] += min(n, descriptors(s))
		}
	}
}

// over returns the sandboxes that hold too many locks, with a description. If the other sandboxes together hold more than
// allLocks, over also returns those with the most. Locks of mapped files count for the limit of a sandbox, but not for
// allLocks: every program maps libraries, and a program of another sandbox can lock these.
func (l *locks) over() map[*Target]string {
	found, sum := map[*Target]string{}, 0
	for s, n := range l.held {
		if n+l.mapped[s] > maxLocks {
			found[s] = fmt.Sprintf("more than %d file locks", maxLocks)
			continue
		}
		sum += n
	}
	for sum > allLocks {
		var most *Target
		for s, n := range l.held {
			if found[s] == "" && n > fewLocks && (most == nil || n > l.held[most]) {
				most = s
			}
		}
		if most == nil {
			break
		}
		found[most] = fmt.Sprintf("%d file locks, where all sandboxes together have more than %d", l.held[most], allLocks)
		sum -= l.held[most]
	}
	return found
}

// addUnowned counts the descriptors and mappings of each sandbox whose file has a lock of a whole file, if processes of no
// sandbox have taken more than maxLocks such locks elsewhere. These processes may have belonged to a sandbox that still has
// the open files. sure is false if a count has not ended yet. The cost of a count is charged to its sandbox. While the
// sandbox is ahead of its share of the server's time, addUnowned uses the last count.
func (o *Objects) addUnowned(l *locks, all []*Target) (sure bool) {
	sure = true
	if l.unowned <= maxLocks {
		return sure
	}
	l.mapped, l.kept = map[*Target]int{}, map[*Target]bool{}
	for _, s := range all {
		last := &s.lastWholes
		if s.wholes.idle() {
			if time.Now().Before(last.from) && l.unowned <= last.unowned+fewLocks {
				l.kept[s] = true
				l.addWholes(s, last.n)
				continue
			}
			last.unowned = l.unowned
		}
		n, done := ask(o, s, &s.wholes, "file locks", func() wholes {
			n := wholes{open: s.countWhole()}
			if n.open <= maxLocks {
				n.mapped = s.countMapped(l.files)
			}
			return n
		})
		if done {
			last.n, last.from = n.value, time.Now().Add(s.restAfter(n.took))
		}
		l.addWholes(s, n.value)
		sure = sure && done
	}
	return sure
}

// lastWholes is the last count of a sandbox's locks of whole files.
type lastWholes struct {
	n       wholes
	from    time.Time // earliest time of the next count
	unowned int       // locks.unowned when the count began; if it grows by more than fewLocks, the next count begins at once
}

// wholes are the locks of whole files of a sandbox.
type wholes struct {
	open   int // descriptors whose open file has such a lock
	mapped int // mappings of files that have such a lock
}

// addWholes adds the counted locks of a sandbox. It adds at most l.unowned, because each of those locks is held once.
func (l *locks) addWholes(s *Target, n wholes) {
	all := max(l.held[s], min(n.open+n.mapped, l.unowned))
	l.held[s] = max(l.held[s], min(n.open, l.unowned))
	l.mapped[s] = all - l.held[s]
}

// addRecords counts the record locks of sandboxes by process, for a list that is too long. sure is false if such a count
// goes on.
func (o *Objects) addRecords(l *locks, all []*Target) (sure bool) {
	sure = true
	for _, s := range all {
		n, done := ask(o, s, &s.records, "file locks", s.countRecords)
		l.held[s], sure = max(l.held[s], n.value), sure && done
	}
	return sure
}

// ownDevices returns the devices of the sandbox's own file systems in memory.
func (s *Target) ownDevices() []uint64 {
	if s.Plain || s.devices != nil {
		return s.devices
	}
	release, err := s.Hold()
	if err != nil {
		return nil
	}
	defer release()
	found := []uint64{}
	for _, at := range []int{jail.DirWork, jail.DirTemp, jail.DirShm} {
		var system unix.Statfs_t
		var st unix.Stat_t
		if fd := s.Slot.Dirs[at]; fd >= 0 && unix.Fstatfs(fd, &system) == nil && system.Type == unix.TMPFS_MAGIC && unix.Fstat(fd, &st) == nil {
			found = append(found, st.Dev)
		}
	}
	var shm unix.Stat_t // the server has a descriptor of it only without a control group
	if unix.Stat("/proc/"+strconv.Itoa(s.Slot.PID())+"/root/dev/shm", &shm) == nil && !s.Slot.Ended() {
		found = append(found, shm.Dev)
	}
	s.devices = found
	return found
}

// descriptors returns how many descriptors the processes of the sandbox have, and files that their calls wait for: a
// descriptor may have been closed meanwhile.
func (s *Target) descriptors() (sum int) {
	for _, p := range s.processes() {
		sum += countFiles(filesOf(p)) + waitedFiles("/proc/"+p)
	}
	return sum
}

// countRecords counts the record locks of the sandbox, up to a few more than it may have, by the descriptors of its
// processes. A process loses its locks on a file when it closes any descriptor of the file.
func (s *Target) countRecords() (sum int) {
	for _, p := range s.processes() {
		dir := filesOf(p)
		names, _ := readNames(dir)
		files := map[string]bool{} // whose locks were counted
		for _, name := range names {
			if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to == epollLink { // a program can hold the lock of an epoll set
				continue
			}
			text, err := os.Open(filepath.Join(filepath.Dir(dir), "fdinfo", name))
			if err != nil {
				continue
			}
			sum += recordsIn(text, files, maxLocks+1)
			_ = text.Close()
			if sum > maxLocks {
				return sum
			}
		}
	}
	return sum
}

// countWhole counts the descriptors of the sandbox whose open file has a lock of a whole file, up to a few more than it
// may have.
func (s *Target) countWhole() (sum int) {
	for _, p := range s.processes() {
		if sum += wholeOf(p, maxLocks-sum); sum > maxLocks {
			return sum
		}
		sum += waitedFiles("/proc/" + p)
	}
	return sum
}

// wholeOf is countWhole for a process, up to one more than most. An open file that processes share counts for each. An epoll
// set counts, because a program can hold its lock. So does each descriptor of a process that hides them.
func wholeOf(p string, most int) int {
	dir := filesOf(p)
	names, err := readNames(dir)
	sum := hiddenFiles(dir, err)
	for _, name := range names {
		if sum > most {
			break
		}
		to, err := os.Readlink(filepath.Join(dir, name))
		if err == nil && to == epollLink || hasWhole(filepath.Join(filepath.Dir(dir), "fdinfo", name)) {
			sum++
		}
	}
	return sum
}

// countMapped counts the mappings of files that have a lock of a whole file, up to a few more than the sandbox may have: a
// mapping keeps the open file. A program can hold the lock of its mappings.
func (s *Target) countMapped(files map[string]bool) (sum int) {
	for _, p := range s.processes() {
		if sum += mappings("/proc/"+p, maxLocks, func(device, inode string) bool { return files[device+":"+inode] }); sum > maxLocks {
			return sum
		}
	}
	return sum
}

// hasWhole reports whether a file in the form of /proc/PID/fdinfo shows a lock of a whole file.
func hasWhole(name string) bool {
	text, _ := os.ReadFile(name)
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 2 && string(f[0]) == "lock:" && string(f[2]) == "FLOCK" { // lock: N: FLOCK ADVISORY READ pid device:inode start end
			return true
		}
	}
	return false
}

// recordsIn counts the record locks of a text in the form of /proc/PID/fdinfo, at most so many. Those of a file in
// counted are left out, and the file is added.
func recordsIn(r io.Reader, counted map[string]bool, most int) (n int) {
	file := ""
	for text := bufio.NewScanner(r); n < most && text.Scan(); {
		f := bytes.Fields(text.Bytes()) // lock: N: POSIX ADVISORY WRITE pid device:inode start end
		if len(f) < 8 || string(f[0]) != "lock:" || string(f[2]) != "POSIX" {
			continue
		}
		if file == "" {
			if file = string(f[6]); counted[file] {
				return 0
			}
			counted[file] = true
		}
		n++
	}
	return n
}

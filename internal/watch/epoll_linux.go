package watch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel counts epoll watches by host user (fs.epoll.max_user_watches), and nothing bounds them
// for a sandbox. An event on a file wakes all of its watches at once, with interrupts off. A watch
// of an epoll set is woken by each watch in that set, so a few thousand watches can be woken
// millions of times by one event, such as a read of a pipe by the server. If sandboxes have the
// server's own user, a program that takes all watches also keeps the server from watching its
// pipes. The server therefore counts the watches of each sandbox and ends the programs of a sandbox
// that holds too many.

const (
	maxWatches = 16384   // of one sandbox; waking them takes about 4 ms
	maxWoken   = 1 << 17 // wakes by one event, which take about 8 ms

	// mostNested is how many watches of epoll sets, and of sets of sets, the kernel lets one file
	// wake (path_limits in fs/eventpoll.c, without those of the file itself).
	mostNested = 500 + 100 + 50 + 10

	epollShare    = 8  // one sandbox may hold 1/epollShare of a user's watches
	epollAll      = 2  // all sandboxes together may hold 1/epollAll of them
	epollShortage = 64 // one sandbox may hold 1/epollShortage of them when the kernel has none left
	epollRest     = 9  // after each count, the server rests this many times as long as the count took
)

// Short requests a count of the watches at once, because the kernel refused to watch a descriptor
// for the server. It does not wait for the count.
func (o *Objects) Short() {
	o.short.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

// lookAtEpoll counts the epoll watches of the sandboxes that have run since their last count. If
// there is one, or short is set, it also counts those of all sandboxes with the server's user.
// Unless short is set, it does nothing before nextEpoll.
func (o *Objects) lookAtEpoll(live []*Target, short bool) {
	if !short && time.Now().Before(o.nextEpoll) {
		return
	}
	some := short || slices.ContainsFunc(live, func(s *Target) bool { return s.epollDue })
	var due []*Target
	for _, s := range live {
		if s.epollDue || some && s.Shares {
			due = append(due, s)
		}
		s.epollDue = false
	}
	if len(due) == 0 {
		return
	}
	began := time.Now()
	o.boundEpoll(due, short)
	o.nextEpoll = time.Now().Add(epollRest * time.Since(began))
}

// boundEpoll ends the programs of each sandbox that holds more than maxWatches, or more than its
// share of the watches of the server's user, or watches of which one event can wake more than
// maxWoken. If all sandboxes with that user hold too many together, it ends the programs of the
// largest one. short says that the kernel has no watches left, and makes the share smaller.
func (o *Objects) boundEpoll(all []*Target, short bool) {
	most := o.userWatches()
	share := most / epollShare
	if short {
		share = most / epollShortage
	}
	share = max(share, 1)
	sum, largest, held := 0, (*Target)(nil), 0
	for _, s := range all {
		limit, shares := maxWatches, s.Shares && most > 0
		if shares {
			limit = min(limit, share)
		}
		n, wakes := s.epollWatches(limit)
		switch {
		case wakes && n <= limit:
			s.End(fmt.Sprintf("epoll watches of epoll sets, woken more than %d times by one event", maxWoken))
		case n > limit && limit == maxWatches:
			s.End(fmt.Sprintf("more than %d epoll watches", maxWatches))
		case n > limit:
			s.End(epollExcess(share))
		case shares:
			if sum += n; n > held {
				largest, held = s, n
			}
		}
	}
	if largest != nil && sum > most/epollAll {
		largest.End(epollExcess(held))
	}
}

// userWatches returns how many epoll watches a user of the host may have; 0: unknown.
func (o *Objects) userWatches() int {
	if n := o.epollWatches; n > 0 {
		return n
	}
	text, err := os.ReadFile("/proc/sys/fs/epoll/max_user_watches")
	n, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		return 0
	}
	return n
}

// epollExcess returns the reason for ending a sandbox that held so many watches.
func epollExcess(held int) string {
	return fmt.Sprintf("%d epoll watches or more, which are the host user's (fs.epoll.max_user_watches)", held)
}

// epollWatches returns how many watches the sandbox holds, as far as its descriptor tables show. It
// stops counting above limit. It cannot use the number of descriptors: a watch belongs to an open
// file and a descriptor number, and stays when the number is closed. So a few files can fill a set
// through all numbers. wakes reports whether one event can wake more than maxWoken.
func (s *Target) epollWatches(limit int) (sum int, wakes bool) {
	release, err := s.Hold()
	if err != nil {
		return 0, false
	}
	defer release()
	pid := s.Slot.PID()
	if pid == 0 || s.Gone() {
		return 0, false
	}
	var maybe []watched
	for _, p := range descendants(strconv.Itoa(pid), nil) {
		if p == strconv.Itoa(pid) {
			continue
		}
		hidden := 0 // watches of descriptors that the process hides
		for _, dir := range fileTables(p) {
			names, err := readNames(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && lives(filepath.Dir(dir)) { // a program may hide its descriptors
				hidden = max(hidden, mostWatches(countFiles(dir)))
			}
			for _, n := range names {
				if to, err := os.Readlink(filepath.Join(dir, n)); err != nil || to != epollLink {
					continue
				}
				in, sets := watchesIn(filepath.Dir(dir), n, limit-sum)
				sum, maybe = sum+in, append(maybe, sets...)
			}
			if sum > limit {
				return sum, false
			}
		}
		sum += hidden
	}
	return sum, woken(sum, len(maybe)) > maxWoken && woken(sum, countSets(maybe)) > maxWoken
}

// woken returns how many watches one event can wake, if all watch the same and some of them are of
// epoll sets.
func woken(all, sets int) int { return all * (1 + min(sets, mostNested)) }

// lives reports whether a task has memory. A task that is ending has none, and its
// descriptors cannot be read either.
func lives(task string) bool {
	text, err := os.ReadFile(filepath.Join(task, "statm"))
	return err == nil && len(text) > 0 && text[0] != '0'
}

const epollLink = "anon_inode:[eventpoll]"

// watched is a file that an epoll set watches and that may be an epoll set, too.
type watched struct {
	task string // directory in /proc of a task that has the set
	set  string // descriptor of the set
	file string // descriptor through which the file was added to the set
}

// watchesIn returns how many watches an epoll set holds, from the fdinfo file of its descriptor. It
// stops counting above limit. It also returns those that may be of epoll sets: all epoll sets have
// one inode, as have other files that are in no file system.
func watchesIn(task, set string, limit int) (n int, sets []watched) {
	f, err := os.Open(filepath.Join(task, "fdinfo", set))
	if err != nil {
		return 0, nil
	}
	defer func() { _ = f.Close() }()
	var self unix.Stat_t
	err = unix.Stat(filepath.Join(task, "fd", set), &self)
	inode := []byte(strconv.FormatUint(self.Ino, 16))
	for text := bufio.NewScanner(f); n <= limit && text.Scan(); {
		fields := bytes.Fields(text.Bytes()) // tfd: N events: N data: N pos:N ino:N sdev:N
		if len(fields) < 2 || string(fields[0]) != "tfd:" {
			continue
		}
		n++
		if err != nil || slices.ContainsFunc(fields, func(f []byte) bool { return bytes.Equal(bytes.TrimPrefix(f, []byte("ino:")), inode) }) {
			sets = append(sets, watched{task, set, string(fields[1])})
		}
	}
	return n, sets
}

// countSets returns how many of the files are epoll sets, but not more than mostNested.
func countSets(files []watched) (n int) {
	for _, w := range files {
		if n < mostNested && w.mayBeSet() {
			n++
		}
	}
	return n
}

// mayBeSet reports whether the file is not known to be no epoll set. The descriptor through which
// it was added may have been closed or be that of another file now.
func (w watched) mayBeSet() bool {
	const kcmpEpollTarget = 7
	to, err := os.Readlink(filepath.Join(w.task, "fd", w.file))
	if err != nil || to == epollLink {
		return true
	}
	task, taskErr := strconv.Atoi(filepath.Base(w.task))
	set, setErr := strconv.ParseUint(w.set, 10, 32)
	file, fileErr := strconv.ParseUint(w.file, 10, 32)
	if taskErr != nil || setErr != nil || fileErr != nil {
		return true
	}
	slot := [3]uint32{uint32(set), uint32(file), 0}
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(task), uintptr(task), kcmpEpollTarget, uintptr(file), uintptr(unsafe.Pointer(&slot)), 0)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		return false // the kernel does not compare, so the link is all that is known
	}
	return errno != 0 || r != 0
}

// mostWatches returns how many watches that many descriptors can hold at most: half of them are
// epoll sets that watch the other half, each through every number.
func mostWatches(files int) int { return (files / 2) * (files / 2) * mostFiles }

// countFiles returns how many descriptors an unreadable fd directory of /proc has. Kernels before
// 6.2 do not show it; countFiles then returns the most that a program may have.
func countFiles(dir string) int {
	if info, err := os.Stat(dir); err == nil && info.Size() > 0 {
		return int(info.Size())
	}
	return mostFiles
}

const mostFiles = 512 // most descriptors of a program that has the server's user

// fileTables returns one fd directory of /proc for each descriptor table of a process. Threads may
// have tables of their own.
func fileTables(pid string) (dirs []string) {
	tasks, _ := readNames("/proc/" + pid + "/task")
	var known []int
	for _, t := range tasks {
		id, err := strconv.Atoi(t)
		if err != nil || slices.ContainsFunc(known, func(other int) bool { return sameFiles(id, other) }) {
			continue
		}
		known, dirs = append(known, id), append(dirs, "/proc/"+pid+"/task/"+t+"/fd")
	}
	return dirs
}

// sameFiles reports whether two tasks share their descriptor table. It returns false if the kernel
// does not say.
func sameFiles(a, b int) bool {
	const kcmpFiles = 2
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	return errno == 0 && r == 0
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}

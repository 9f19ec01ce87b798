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

	"golang.org/x/sys/unix"
)

// The kernel counts epoll watches by host user (fs.epoll.max_user_watches), and nothing bounds them
// for a sandbox. An event on a file wakes all of its watches at once, with interrupts off. The
// event may be a read of a pipe by the server, or the end of a process. The latter delays every
// other process of the host that starts or ends. If sandboxes have the server's own user, a program
// that takes all watches also keeps the server from watching its pipes. The server therefore counts
// the watches of each sandbox and ends the programs of a sandbox that holds too many.

const (
	maxWatches = 16384 // of one sandbox; waking them takes about 4 ms

	// fewWatches is less kernel memory, in bytes, than maxWatches take, and more than usual
	// programs need.
	fewWatches = 2 << 20

	epollEvery    = 500 * time.Millisecond
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

// lookAtEpoll counts the epoll watches of the sandboxes that may hold too many. Unless short is
// set, it does nothing before nextEpoll or while no count is due.
func (o *Objects) lookAtEpoll(live []*Target, short bool) {
	if !short && (!o.epollDue || time.Now().Before(o.nextEpoll)) {
		return
	}
	o.epollDue = false
	suspects := slices.DeleteFunc(slices.Clone(live), func(s *Target) bool { return !s.Shares && s.holdsFewWatches() })
	if len(suspects) == 0 {
		return
	}
	began := time.Now()
	o.boundEpoll(suspects, short)
	o.nextEpoll = time.Now().Add(max(epollEvery, epollRest*time.Since(began)))
}

// holdsFewWatches reports whether the sandbox has too little kernel memory for maxWatches.
func (s *Target) holdsFewWatches() bool {
	if s.Group == nil {
		return false
	}
	release, err := s.Hold()
	if err != nil {
		return true
	}
	defer release()
	n := s.Group.KernelMemory()
	return n > 0 && n < fewWatches
}

// boundEpoll ends the programs of each sandbox that holds more than maxWatches, or more than its
// share of the watches of the server's user. If all sandboxes with that user hold too many
// together, it ends the programs of the largest one. short says that the kernel has no watches
// left, and makes the share smaller.
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
		n := s.epollWatches(limit)
		switch {
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
// through all numbers.
func (s *Target) epollWatches(limit int) int {
	release, err := s.Hold()
	if err != nil {
		return 0
	}
	defer release()
	pid := s.Slot.PID()
	if pid == 0 || s.Gone() {
		return 0
	}
	sum := 0
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
				if to, err := os.Readlink(filepath.Join(dir, n)); err != nil || to != "anon_inode:[eventpoll]" {
					continue
				}
				sum += watchesIn(filepath.Join(filepath.Dir(dir), "fdinfo", n), limit-sum)
			}
			if sum > limit {
				return sum
			}
		}
		sum += hidden
	}
	return sum
}

// lives reports whether a task has memory. A task that is ending has none, and its
// descriptors cannot be read either.
func lives(task string) bool {
	text, err := os.ReadFile(filepath.Join(task, "statm"))
	return err == nil && len(text) > 0 && text[0] != '0'
}

// watchesIn returns how many watches an epoll set holds, from the fdinfo file of its descriptor. It
// stops counting above limit.
func watchesIn(file string, limit int) (n int) {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for text := bufio.NewScanner(f); n <= limit && text.Scan(); {
		if bytes.HasPrefix(text.Bytes(), []byte("tfd:")) {
			n++
		}
	}
	return n
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

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// The kernel counts epoll watches by host user (fs.epoll.max_user_watches), and
// nothing bounds them for a sandbox. Where sandboxes have the server's own user, a
// program that takes them all keeps the server from watching its pipes. So the
// server counts what each sandbox holds, and ends the programs of one that holds
// too many.

const (
	epollEvery    = 500 * time.Millisecond
	epollShare    = 8  // of all watches of a user, that one sandbox may hold
	epollAll      = 2  // likewise, that all sandboxes may hold
	epollShortage = 64 // likewise, that one sandbox may hold when there are none left
	epollRest     = 9  // times as long as an exact count took no other is made
)

// epollGuard counts the epoll watches of sandboxes with the server's user.
type epollGuard struct {
	mu        sync.Mutex
	timer     *time.Timer // nil: no sandbox lives
	short     bool        // the kernel has just refused to watch a descriptor for the server
	notBefore time.Time   // of the next exact count
}

// sharesUser tells whether the sandbox's programs have the server's host user.
func (s *sandbox) sharesUser() bool { return s.slot.UID() == os.Geteuid() }

// guardEpoll has the sandboxes looked at for as long as one lives.
func (b *Backend) guardEpoll() {
	g := &b.epoll
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil {
		g.timer = time.AfterFunc(epollEvery, b.lookEpoll)
	}
}

// shortOfEpoll has the sandboxes looked at now. It is called when the kernel
// refused to watch a descriptor for the server.
func (b *Backend) shortOfEpoll() {
	g := &b.epoll
	g.mu.Lock()
	defer g.mu.Unlock()
	g.short = true
	if g.timer != nil {
		g.timer.Reset(0)
	}
}

// refused looks for the cause when an error is that the kernel refused to watch a
// descriptor.
func (b *Backend) refused(err error) {
	if errors.Is(err, jail.ErrNotPolled) {
		b.shortOfEpoll()
	}
}

// lookEpoll counts once, ends programs where it has to, and comes again.
func (b *Backend) lookEpoll() {
	g := &b.epoll
	b.mu.Lock()
	var all []*sandbox
	for s := range b.live {
		if s.sharesUser() {
			all = append(all, s)
		}
	}
	b.mu.Unlock()
	g.mu.Lock()
	short, rested := g.short, !time.Now().Before(g.notBefore)
	g.short = false
	g.mu.Unlock()
	if rested || short {
		began := time.Now()
		b.boundEpoll(all, short)
		g.mu.Lock()
		g.notBefore = time.Now().Add(epollRest * time.Since(began))
		g.mu.Unlock()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(all) == 0 {
		g.timer = nil
		return
	}
	g.timer.Reset(epollEvery)
}

// boundEpoll ends the programs of each sandbox that holds more than its share,
// and of the largest when all of them together hold too much or none are left.
func (b *Backend) boundEpoll(all []*sandbox, short bool) {
	most := b.cfg.testOnlyEpollWatches
	if most == 0 {
		text, err := os.ReadFile("/proc/sys/fs/epoll/max_user_watches")
		if most, _ = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || most <= 0 {
			return
		}
	}
	share := most / epollShare
	if short {
		share = most / epollShortage
	}
	share = max(share, 1)
	sum, largest, held := 0, (*sandbox)(nil), 0
	for _, s := range all {
		n := s.epollWatches(share)
		if n > share {
			s.endForEpoll(share)
			continue
		}
		if sum += n; n > held {
			largest, held = s, n
		}
	}
	if largest != nil && sum > most/epollAll {
		largest.endForEpoll(held)
	}
}

// endForEpoll ends every program of the sandbox.
func (s *sandbox) endForEpoll(held int) {
	release, err := s.hold()
	if err != nil {
		return
	}
	defer release()
	s.mu.Lock()
	s.exceeded = append(s.exceeded, fmt.Sprintf("The program was ended: it held %d epoll watches or more, which are the host user's (fs.epoll.max_user_watches)", held))
	s.mu.Unlock()
	s.b.log.Warn("a sandbox held too many epoll watches, and its programs are ended", "sandbox", s.spec.ID, "watches", held)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // no call waits for it
	defer cancel()
	if s.slot.Clear(ctx) != nil {
		_ = s.slot.Kill()
	}
}

// epollWatches is how many watches the sandbox holds, as far as its tables of
// descriptors show. It counts only when the number of descriptors allows for more
// than limit, and stops above it.
func (s *sandbox) epollWatches(limit int) int {
	release, err := s.hold()
	if err != nil {
		return 0
	}
	defer release()
	pid := s.slot.PID()
	if pid == 0 || s.gone() {
		return 0
	}
	var tables []string
	possible, hidden := 0, 0
	for _, p := range descendants(strconv.Itoa(pid), nil) {
		if p == strconv.Itoa(pid) {
			continue
		}
		for _, dir := range fileTables(p) {
			names, err := readNames(dir)
			if err == nil {
				tables = append(tables, dir)
				possible += mostWatches(len(names))
			} else if !errors.Is(err, fs.ErrNotExist) { // a program may hide its descriptors
				hidden += mostWatches(countFiles(dir))
			}
		}
	}
	if possible+hidden <= limit {
		return 0
	}
	sum := hidden
	for _, dir := range tables {
		names, _ := readNames(dir)
		for _, n := range names {
			if to, err := os.Readlink(filepath.Join(dir, n)); err != nil || to != "anon_inode:[eventpoll]" {
				continue
			}
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(dir), "fdinfo", n))
			if sum += bytes.Count(text, []byte("\ntfd:")); sum > limit {
				return sum
			}
		}
	}
	return sum
}

// mostWatches is how many watches a number of descriptors can hold: half of them
// watch the other half.
func mostWatches(files int) int { return (files / 2) * (files / 2) }

// countFiles is how many descriptors a directory of /proc has that cannot be read.
// Kernels before 6.2 do not tell; then they are as many as a program may have.
func countFiles(dir string) int {
	if info, err := os.Stat(dir); err == nil && info.Size() > 0 {
		return int(info.Size())
	}
	return mostFiles
}

const mostFiles = 512 // that a program with the server's user may have

// fileTables names a directory in /proc for each table of descriptors that a
// process has: threads may have their own.
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

// sameFiles tells whether two tasks share their descriptors. What cannot be told
// is taken for two tables.
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

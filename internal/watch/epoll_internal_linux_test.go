package watch

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEpollBounds: each bound ends a sandbox above it, and not at it.
func TestEpollBounds(t *testing.T) {
	for _, c := range []struct {
		at, over epollCount
		want     string
	}{
		{epollCount{watches: maxWatches}, epollCount{watches: maxWatches + 1}, "more than 16384 epoll watches"},
		{epollCount{watches: maxWatches, hidden: maxWatches}, epollCount{watches: maxWatches + 1, hidden: 1}, "hide (PR_SET_DUMPABLE), which may be more than 16384 epoll watches"},
		{epollCount{}, epollCount{watches: 2 * maxWatches, hidden: 1}, "more than 16384 epoll watches"},
		{epollCount{ofPipe: maxOfPipe}, epollCount{ofPipe: maxOfPipe + 1}, "64 epoll watches of one pipe"},
		{epollCount{closed: maxClosed}, epollCount{closed: maxClosed + 1}, "open so often"},
		{epollCount{opened: maxOpened}, epollCount{opened: maxOpened + 1}, "4096 descriptors of one pipe"},
		{epollCount{opened: maxOpened + 80, processes: 10}, epollCount{opened: maxOpened + 81, processes: 10}, "descriptors of one pipe"},
		{epollCount{woken: maxWoken}, epollCount{woken: maxWoken + 1}, "by one event"},
	} {
		if got := c.at.excess(); got != "" {
			t.Errorf("%+v: got %q, want no excess", c.at, got)
		}
		if got := c.over.excess(); !strings.Contains(got, c.want) {
			t.Errorf("%+v: got %q, want it to contain %q", c.over, got, c.want)
		}
	}
}

// TestSetsOfAnEndedProcessAreUnsure: a process that ends between the reading of its sets and that of the
// files in them makes the count unsure. A file that was closed and is still watched counts as a set.
func TestSetsOfAnEndedProcessAreUnsure(t *testing.T) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(set) }()
	ended := exec.Command("true")
	if err = ended.Run(); err != nil {
		t.Fatal(err)
	}
	const closed = "1000000"
	for task, unsure := range map[string]bool{"/proc/self": false, fmt.Sprintf("/proc/%d", ended.Process.Pid): true} {
		var c epollCount
		n := c.countSets([]watched{{task, strconv.Itoa(set), closed}})
		if n != 1 || c.unsure != unsure {
			t.Errorf("%s: got %d sets, unsure %v; want 1, unsure %v", task, n, c.unsure, unsure)
		}
	}
}

// TestGrantsShrink: the more watches one file has, the fewer are granted, because each of them
// could be of a set in which all others are.
func TestGrantsShrink(t *testing.T) {
	for ofOne, want := range map[int]int{0: 64, 1: 64, 1000: 64, 4000: 21, 10_000: 7, maxWatches: 4} {
		if got := (epollCount{ofOne: ofOne}).grant(); got != want {
			t.Errorf("%d watches of one file: got a grant of %d, want %d", ofOne, got, want)
		}
	}
}

// TestAHeldPipeWakesNothing: closing one of several readers of a pipe without a writer wakes its
// watches, and wakes none while the pipe is held.
func TestAHeldPipeWakesNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	_ = w.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", r.Fd())
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(set) }()
	if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, int(r.Fd()), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
		t.Fatal(err)
	}
	woken := func() int {
		n, err := unix.EpollWait(set, make([]unix.EpollEvent, 1), 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	closeOne := func() int {
		woken()
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		return woken()
	}
	if got := closeOne(); got != 1 {
		t.Errorf("not held: got %d events, want 1", got)
	}
	release := epollCount{often: []string{path}}.hold(time.Now().Add(time.Minute))
	if got := closeOne(); got != 0 {
		t.Errorf("held: got %d events, want none", got)
	}
	release()
	if fd, err := openPipe("/proc/self/exe"); err == nil {
		_ = unix.Close(fd)
		t.Error("a file that is no pipe: it was opened, want an error")
	}
	if got := closeOne(); got != 1 {
		t.Errorf("released: got %d events, want 1", got)
	}
}

// TestAnUnreadableProcessMakesACountUnsure: the descriptors of a process that is starting cannot be read,
// as those that a program hides. One such count ends no sandbox.
func TestAnUnreadableProcessMakesACountUnsure(t *testing.T) {
	for name, c := range map[string]struct {
		statm   string // empty: no file
		err     error
		hides   bool
		because string
	}{
		"hidden": {"100 50 20 1 0 30 0\n", fs.ErrPermission, true, "the task has memory"},
		"read":   {"100 50 20 1 0 30 0\n", nil, false, "its descriptors were read"},
		"gone":   {"100 50 20 1 0 30 0\n", fs.ErrNotExist, false, "its directory is gone"},
		"ending": {"0 0 0 0 0 0 0\n", fs.ErrPermission, false, "it has no memory"},
		"ended":  {"", fs.ErrPermission, false, "it is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			task := t.TempDir()
			if err := os.Mkdir(filepath.Join(task, "fd"), 0o700); err != nil {
				t.Fatal(err)
			}
			if c.statm != "" {
				if err := os.WriteFile(filepath.Join(task, "statm"), []byte(c.statm), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var count epollCount
			n := count.hiddenIn(filepath.Join(task, "fd"), c.err)
			if (n > 0) != c.hides || count.unsure != c.hides {
				t.Errorf("got %d hidden watches and unsure %v, want both only if the task hides them: %v, because %s", n, count.unsure, c.hides, c.because)
			}
		})
	}
}

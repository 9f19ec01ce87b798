package watch

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestFilesOfTheHostAreRead: sandboxes are looked at when half of what the kernel allows is open.
func TestFilesOfTheHostAreRead(t *testing.T) {
	if used, most := filesIn("2286\t0\t2466193\n"); used != 2286 || most != 2466193 {
		t.Errorf("got %d of %d, want 2286 of 2466193", used, most)
	}
	if used, most := filesIn(""); used != 0 || most != 0 {
		t.Errorf("no text: got %d of %d, want none", used, most)
	}
	looked := false
	s := &Target{Hold: func() (func(), error) { looked = true; return nil, os.ErrClosed }}
	for text, want := range map[string]bool{"999 0 2000": false, "1000 0 2000": true, "9000 0 9223372036854775807": false} {
		looked = false
		if o := NewObjects(0); o.lookAtFiles([]*Target{s}, text) || looked != want {
			t.Errorf("%s: got looked %t, want %t", text, looked, want)
		}
	}
}

// TestMappingsKeepFilesOpen: a mapping counts although the descriptor of its file was closed.
func TestMappingsKeepFilesOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	before := mappedFiles("/proc/self", 1<<20)
	const more = 500
	for range more {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(m) }()
		_ = unix.Close(fd)
	}
	if got := mappedFiles("/proc/self", 1<<20) - before; got < more {
		t.Errorf("got %d more mappings of files, want %d", got, more)
	}
	if got := mappedFiles("/proc/self", 100); got != 101 {
		t.Errorf("got %d mappings of files, want the count to stop at 101", got)
	}
}

// TestWaitingCallsKeepFilesOpen: the files that a call waits for count although their descriptors were closed.
func TestWaitingCallsKeepFilesOpen(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	const more = 300
	before := waitedFiles("/proc/self")
	list := []unix.PollFd{{Fd: int32(pipe[0]), Events: unix.POLLIN}}
	for len(list) < more {
		fd, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	done := make(chan error)
	go func() {
		_, err := unix.Poll(list, -1)
		done <- err
	}()
	got := 0
	for range 1000 { // until the call waits
		if got = waitedFiles("/proc/self") - before; got >= more {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got < more {
		t.Errorf("got %d more files that calls wait for, want %d", got, more)
	}
	_ = unix.Close(pipe[1]) // ends the wait
	if err := <-done; err != nil {
		t.Log(err)
	}
	for _, p := range list {
		_ = unix.Close(int(p.Fd))
	}
}

// TestCallsKeepNoMoreFilesThanTheHostHasOpen: a call that waits to send bytes looks like one that sends files, and one that
// waits for a file with a high number like one that waits for many. So a program with many such calls keeps few.
func TestCallsKeepNoMoreFilesThanTheHostHasOpen(t *testing.T) {
	calls := 2*hostFiles()/mostSent + 2
	testkit.Need(t, "a host with few open files", calls < 500, "each call takes a thread")
	var done sync.WaitGroup
	defer done.Wait()
	for range calls {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			_, _ = unix.SendmsgN(pair[0], make([]byte, 1<<20), nil, nil, unix.MSG_NOSIGNAL)
			_ = unix.Close(pair[0])
		})
		defer func() { _ = unix.Close(pair[1]) }() // ends the wait
	}
	testkit.Until(t, "all calls wait", func() bool {
		_, sent := filesOfCalls("/proc/self")
		return sent >= calls*mostSent
	})
	self, most := []string{strconv.Itoa(os.Getpid())}, calls*mostSent*3/4 // other processes may open files meanwhile
	if got := excessOfDirectories(self, most); got != "" {
		t.Errorf("of no directories: got %q", got)
	}
	if got := countTexts(self); got.sent > most || got.kept > most {
		t.Errorf("got %+v, want at most %d files in calls", got, most)
	}
}

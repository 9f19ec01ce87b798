package jail

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestTheEndWaitsForARelease: a sandbox whose memory is being released has not ended for its caller, which gives
// the user id to another sandbox then.
func TestTheEndWaitsForARelease(t *testing.T) {
	_, s := testSlot(t)
	var going atomic.Bool
	going.Store(true)
	s.releasing.Lock() // as a release does
	go func() {
		for end := time.Now().Add(10 * time.Second); !s.Ended() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // an end that does not wait returns meanwhile
		going.Store(false)
		s.releasing.Unlock()
	}()
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	if going.Load() {
		t.Error("the sandbox has ended while a release went on, want it waited for")
	}
	if s.releasing.Lock(); !s.released {
		t.Error("a later release may begin, want none")
	}
	s.releasing.Unlock()
}

// TestALockedProcessDoesNotDelayOtherReleases: the kernel lets the release of a process wait while that process changes its
// mappings. The memory of others is taken meanwhile.
func TestALockedProcessDoesNotDelayOtherReleases(t *testing.T) {
	others, end := make(chan struct{}, 2), time.NewTimer(10*time.Second)
	defer end.Stop()
	var released atomic.Int64
	atOnce(make(chan struct{}, 3), []string{"locked", "2", "3"}, func(pid string) {
		defer released.Add(1)
		if pid != "locked" {
			others <- struct{}{}
			return
		}
		for range cap(others) {
			select {
			case <-others:
			case <-end.C:
				t.Error("the memory of others is not released while one process makes the server wait")
				return
			}
		}
	})
	if n := released.Load(); n != 3 {
		t.Errorf("got %d releases that have ended, want all 3", n)
	}
}

// TestReleasesKeepFewThreads: each release that waits keeps a thread of the server. So all sandboxes together have a bound, which a
// sandbox that gets no more of them does not wait for.
func TestReleasesKeepFewThreads(t *testing.T) {
	places, go1, go2 := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	var first, second atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		atOnce(places, []string{"1", "2"}, func(string) {
			first.Add(1)
			<-go1
		})
	}()
	testkit.Until(t, "one sandbox has all places", func() bool { return first.Load() == 2 })
	others := make(chan struct{})
	go func() {
		defer close(others)
		atOnce(places, []string{"3", "4", "5"}, func(string) {
			if second.Add(1) > 1 {
				return
			}
			<-go2
		})
	}()
	testkit.Until(t, "another sandbox has begun", func() bool { return second.Load() > 0 })
	if n := second.Load(); n != 1 || len(places) != 2 {
		t.Errorf("got %d releases without a place at a time, and %d places taken, want 1 and 2", n, len(places))
	}
	close(go2)
	<-others
	close(go1)
	<-ended
	if n := second.Load(); n != 3 || len(places) != 0 {
		t.Errorf("got %d releases, and %d places still taken, want 3 and none", n, len(places))
	}
	if none, few, many := releasesOf(0), releasesOf(256), releasesOf(1<<16); none != mostReleases || few != 8 || many != mostReleases {
		t.Errorf("got %d, %d and %d places, want %d, 8 and %d", none, few, many, mostReleases, mostReleases)
	}
}

// TestOnlyFilesOfTheSandboxAreCut: files stay as they are that have another owner, that the caller of the run may
// still want, that the host shares, or that a process shares whose id is another's by now.
func TestOnlyFilesOfTheSandboxAreCut(t *testing.T) {
	const user = 4242
	if os.Geteuid() != 0 {
		t.Skip("only root opens the files that a process maps")
	}
	dir, err := os.MkdirTemp("/dev/shm", "release") //nolint:usetesting // it has to be in memory
	if err != nil {
		t.Skipf("no file system in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	alive, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Skipf("no pidfd: %v", err)
	}
	defer closeAll(alive)
	for name, c := range map[string]struct {
		unnamed, gone bool
		cutter
		want bool
	}{
		"Unnamed":          {unnamed: true, cutter: cutter{uid: user}, want: true},
		"Named":            {cutter: cutter{uid: user}},
		"Named, late":      {cutter: cutter{uid: user, named: true}, want: true},
		"Another owner":    {unnamed: true, cutter: cutter{uid: user + 1}},
		"Of the host":      {cutter: cutter{uid: user, named: true, not: Shared{Host: dir, Inside: dir, Writable: true}}},
		"Of the host, old": {unnamed: true, cutter: cutter{uid: user, not: Shared{Host: dir, Inside: dir, Writable: true}}},
		"Another process":  {unnamed: true, gone: true, cutter: cutter{uid: user}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, strconv.Itoa(len(name)))
			fd, err := unix.Open(file, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(fd)
			if err = unix.Fchown(fd, user, user); err == nil {
				_, err = unix.Write(fd, bytes.Repeat([]byte("x"), os.Getpagesize()))
			}
			if err != nil {
				t.Fatal(err)
			}
			memory, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Munmap(memory) }()
			if c.unnamed {
				if err = os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			pidfd := alive
			if c.gone {
				pidfd = pidfdOfAnEnded(t)
			}
			c.seen = map[inode]bool{}
			c.cutShared(strconv.Itoa(os.Getpid()), pidfd)
			var st unix.Stat_t
			if err = unix.Fstat(fd, &st); err != nil || (st.Size == 0) != c.want {
				t.Errorf("got %d bytes, %v, want it empty: %v", st.Size, err, c.want)
			}
			if err = os.Remove(file); err != nil && !c.unnamed {
				t.Error(err)
			}
		})
	}
}

// pidfdOfAnEnded returns a pidfd of a process that has ended. Its id may be another's.
func pidfdOfAnEnded(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	fd := -1
	cmd.SysProcAttr = &unix.SysProcAttr{PidFD: &fd}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(fd) })
	return fd
}

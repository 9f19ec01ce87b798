package jail

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAFullDirectoryIsNotMadeSmaller: a working directory that holds more than its new size is refused and
// keeps the size that it has.
func TestAFullDirectoryIsNotMadeSmaller(t *testing.T) {
	_, s := testSlot(t)
	size := func() int64 {
		var st unix.Statfs_t
		if err := unix.Fstatfs(s.Dirs[DirWork], &st); err != nil {
			t.Fatal(err)
		}
		return int64(st.Blocks) * st.Bsize
	}
	runtime.LockOSThread() // the user of the file is that of the programs, because the server's has no id there
	_, _ = unix.SetfsgidRetGid(s.UID())
	_, _ = unix.SetfsuidRetUid(s.UID())
	fd, err := unix.Openat(s.Dirs[DirWork], "full", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	_, _ = unix.SetfsuidRetUid(os.Geteuid())
	_, _ = unix.SetfsgidRetGid(os.Getegid())
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(fd)
	const held = 512 << 10
	if n, err := unix.Write(fd, make([]byte, held)); n != held || err != nil {
		t.Fatalf("write: got %d bytes and %v, want %d", n, err, held)
	}
	if err := s.Resize(Room{WorkBytes: held / 2}); err == nil || size() != testSize.WorkBytes {
		t.Errorf("a size below what it holds: got %v and a size of %d, want an error and %d", err, size(), testSize.WorkBytes)
	}
	if err := s.Resize(Room{WorkBytes: 2 * held}); err != nil || size() != 2*held {
		t.Errorf("a size above it: got %v and a size of %d, want %d", err, size(), 2*held)
	}
}

// TestLimitsAreLowered: init, a fork that waits and one that is made later have the new limits. Nothing is set once the
// sandbox has ended, because its process ids may be those of other programs.
func TestLimitsAreLowered(t *testing.T) {
	j, s := testSlot(t)
	z := testZygote(t, j)
	pids := map[string]int{"init": s.PID()}
	fork := func(name string) {
		c, err := z.Fork(s, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Release)
		pids[name] = c.HostPID()
	}
	fork("an earlier fork")
	if err := s.Lower(Lowered{CPUSeconds: 33, MaxTasks: 11, DataBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	fork("a later fork")
	for name, pid := range pids {
		for limit, want := range map[int]uint64{unix.RLIMIT_CPU: 33, unix.RLIMIT_NPROC: 12, unix.RLIMIT_DATA: 1 << 30} {
			var got unix.Rlimit
			if err := unix.Prlimit(pid, limit, nil, &got); err != nil || got.Cur != want || got.Max != want {
				t.Errorf("%s, limit %d: got %+v, %v, want %d", name, limit, got, err, want)
			}
		}
	}
	if got, err := s.Observe(0); err != nil || !slices.Contains(got.Walls, WallTasks) {
		t.Errorf("afterwards: got the walls %v, %v, want that of tasks", got, err)
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	if err := s.Lower(Lowered{CPUSeconds: 22}); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: got %v, want ErrEnded", err)
	}
}

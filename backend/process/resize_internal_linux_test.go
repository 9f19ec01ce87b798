package process

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestReadySandboxesAreLooseWithinBounds: without control groups, a ready sandbox in which package code may run may have as many
// tasks as are reserved for it. Each may have the data of all requests of its kind.
func TestReadySandboxesAreLooseWithinBounds(t *testing.T) {
	cfg := Config{}
	WithoutCgroup(&cfg)
	b := New(cfg)
	defer func() { _ = b.Close(t.Context()) }()
	spec := trialSpec("ready")
	spec.MemoryBytes = readyWatched.memory + 1 // a kind of its own
	for loads, want := range map[string]int{"": readyWatched.tasks, "packages": spec.MaxTasks} {
		spec.Loads = loads
		s := &sandbox{b: b, spec: spec, rlimitTasks: spec.MaxTasks, rlimitData: dataBytes(spec)}
		s.loosen(b.resizes())
		other := spec
		other.MaxTasks = want
		if s.rlimitTasks != want || b.keyOf(other) != b.keyOf(spec) || s.rlimitData != dataBytes(other) {
			t.Errorf("loads %q: got %d tasks and %d bytes of data, want %d and %d", loads, s.rlimitTasks, s.rlimitData, want, dataBytes(other))
		}
	}
}

// TestCPUTimeIsRoundedUp: a limit below a second is not taken for none.
func TestCPUTimeIsRoundedUp(t *testing.T) {
	for limit, want := range map[time.Duration]int64{0: 0, time.Millisecond: 1, time.Second: 1, 1500 * time.Millisecond: 2} {
		spec := trialSpec("ready")
		spec.CPUTime = limit
		s := &sandbox{spec: spec}
		if got := s.slotConfig().Size.CPUSeconds; got != want {
			t.Errorf("%v: got %d, want %d", limit, got, want)
		}
		if got := s.lowers(spec).CPUSeconds; got != 0 {
			t.Errorf("%v: got %d, want that the same limit is not lowered", limit, got)
		}
	}
}

// TestOtherCoresAreRefusedWithoutAGroup: without a control group a sandbox is pinned to its processors when it is built,
// so a ready one serves only requests for as many.
func TestOtherCoresAreRefusedWithoutAGroup(t *testing.T) {
	spec := trialSpec("ready")
	s := &sandbox{hall: &hall{Jail: new(jail.Jail)}, spec: spec, rlimitTasks: spec.MaxTasks, rlimitData: dataBytes(spec)}
	if err := s.resize(spec); err != nil {
		t.Errorf("the same limits: got %v, want nil", err)
	}
	spec.CPUCores *= 2
	if err := s.resize(spec); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("other cores: got %v, want unsupported", err)
	}
}

// TestAReadySandboxThatCannotBeResizedIsNotUsed: the request gets a new sandbox with the size that it
// asked for, and the ready one is closed.
func TestAReadySandboxThatCannotBeResizedIsNotUsed(t *testing.T) {
	b := New(Config{})
	defer func() { _ = b.Close(t.Context()) }()
	spec := trialSpec("large")
	spec.MemoryBytes, spec.WorkBytes = 96<<20, 1<<20
	for range 2 {
		sb, err := b.Open(t.Context(), spec)
		if err != nil {
			t.Skipf("no sandbox can be built here: %v", err)
		}
		_ = sb.Close(t.Context())
	}
	if most, _ := b.resizes(); most == (ready{}) {
		t.Skip("sandboxes are not resized here")
	}
	testkit.Until(t, "two are ready", func() bool { return b.ready.Len() == 2 })
	old := map[*sandbox]int{} // by process id
	b.ready.Each(func(s *sandbox) {
		old[s] = s.slot.PID()
		occupy(t, s, 512<<10)
	})
	spec.ID, spec.WorkBytes, spec.MaxTasks = "small", 256<<10, spec.MaxTasks+1
	sb, err := b.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	got, ok := sb.(*sandbox)
	if !ok || old[got] != 0 {
		t.Fatalf("got %T with the process %d of those that were ready, want a new sandbox", sb, old[got])
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(got.slot.Dirs[jail.DirWork], &st); err != nil {
		t.Fatal(err)
	}
	if size := int64(st.Blocks) * st.Bsize; size != spec.WorkBytes {
		t.Errorf("size of its working directory: got %d, want %d", size, spec.WorkBytes)
	}
	testkit.Until(t, "one of those that were ready has ended", func() bool {
		ended := 0
		for _, pid := range old {
			if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
				ended++
			}
		}
		return ended > 0
	})
	if err := errors.Join(sb.Close(t.Context()), b.Close(t.Context())); err != nil || b.tasks != 0 {
		t.Errorf("all closed: got %v and %d tasks that are reserved, want none", err, b.tasks)
	}
}

// occupy makes a file of n bytes in the working directory of a sandbox, as a program of it.
func occupy(t *testing.T, s *sandbox, n int) {
	t.Helper()
	runtime.LockOSThread() // the server's own user has no id there
	_, _ = unix.SetfsgidRetGid(s.slot.UID())
	_, _ = unix.SetfsuidRetUid(s.slot.UID())
	fd, err := unix.Openat(s.slot.Dirs[jail.DirWork], "full", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	_, _ = unix.SetfsuidRetUid(os.Geteuid())
	_, _ = unix.SetfsgidRetGid(os.Getegid())
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if got, err := unix.Write(fd, make([]byte, n)); got != n || err != nil {
		t.Fatalf("write: got %d bytes and %v, want %d", got, err, n)
	}
}

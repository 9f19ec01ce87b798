package jail

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

// Lowered are limits of processes that are lowered when a ready sandbox is handed out. 0: a limit stays.
type Lowered struct {
	CPUSeconds int64 // see Size
	MaxTasks   int   // see Size
	DataBytes  int64 // see Size
	Ran        bool  // code of packages may have run in the sandbox: its processes are looked at
}

// Lower lowers limits of init and of each of its children, and reads them back. Forks that wait for a
// program, and later ones, get the limits, too. Processes inherit them. With Lowered.Ran, Lower fails if one of its children
// has children, which would keep their limits, or more tasks than the new limit.
//
// Preconditions: ModeRoot or ModeUser. No program was started in the sandbox. It may not be called after Close.
func (s *Slot) Lower(l Lowered) error {
	pid := s.PID()
	if pid == 0 || s.Ended() { // its process id may be another's by now
		return fmt.Errorf("lower the limits: %w", ErrEnded)
	}
	if err := l.set(pid); err != nil { // before its children are read, so that none comes with the old limits
		return err
	}
	children, err := childrenOf(pid)
	if err != nil {
		return fmt.Errorf("lower the limits: %w", err)
	}
	for child := range strings.FieldsSeq(children) {
		var n int
		if n, err = strconv.Atoi(child); err == nil {
			err = l.set(n)
		}
		if err == nil && l.Ran { // afterwards, because what it starts now has the limits
			err = l.kept(child)
		}
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowered = l
	s.changes++
	if s.seen != nil { // only the limits have changed, and are not above those of the walls
		now := *s.seen
		now.limits = nil
		s.seen = &now
	}
	return nil
}

// kept fails if package code in a child of init has got around the limits before they were lowered.
func (l Lowered) kept(child string) error {
	if len(Children(child)) > 0 {
		return fmt.Errorf("process %s has children, which have higher limits", child)
	}
	tasks, _ := os.ReadDir("/proc/" + child + "/task")
	if l.MaxTasks > 0 && len(tasks) > l.MaxTasks {
		return fmt.Errorf("process %s has %d tasks, above a limit of %d", child, len(tasks), l.MaxTasks)
	}
	return nil
}

// set lowers the limits of one process and reads them back.
func (l Lowered) set(pid int) error {
	var err error
	if l.CPUSeconds > 0 {
		err = lower(pid, "CPU time", unix.RLIMIT_CPU, l.CPUSeconds)
	}
	if l.MaxTasks > 0 && err == nil {
		err = lower(pid, "tasks", unix.RLIMIT_NPROC, int64(l.MaxTasks)+1)
	}
	if l.DataBytes > 0 && err == nil {
		err = lower(pid, "memory", unix.RLIMIT_DATA, l.DataBytes)
	}
	return err
}

func lower(pid int, what string, limit int, to int64) error {
	to = min(to, hardLimit(limit)) // it cannot be raised, see rlimits
	want := unix.Rlimit{Cur: uint64(to), Max: uint64(to)}
	var got unix.Rlimit
	err := unix.Prlimit(pid, limit, &want, nil)
	if err == nil {
		err = unix.Prlimit(pid, limit, nil, &got)
	}
	if err == nil && got != want {
		err = fmt.Errorf("it is %d", got.Cur)
	}
	if err != nil {
		return fmt.Errorf("lower the limit of %s of process %d to %d: %w", what, pid, to, err)
	}
	return nil
}

// Room is the size of directories that programs can write to, see Size. 0: a directory keeps its size.
type Room struct {
	WorkBytes int64
	TempBytes int64
}

// Resize changes the size of the sandbox's directories. It reads the new sizes back from the kernel, and
// fails if one is another. No directory may hold more than its new size.
//
// Preconditions: ModeRoot or ModeUser, and SlotConfig.WantProc if TempBytes is set. It may not be called after Close.
func (s *Slot) Resize(r Room) error {
	defer s.stale() // afterwards, so that no look from before is kept
	at, places := bounds.Places(r.WorkBytes, 0, r.TempBytes), []place{}
	if r.WorkBytes > 0 {
		places = append(places, place{at[0], s.Dirs[DirWork]})
	}
	if r.TempBytes > 0 {
		places = append(places, place{at[1], s.Dirs[DirTemp]}, place{at[2], s.Dirs[DirShm]})
	}
	err := s.remount(places)
	for _, p := range places {
		if err == nil {
			err = p.check()
		}
	}
	if err != nil {
		return fmt.Errorf("resize: %w", err)
	}
	return nil
}

// place is a directory of a sandbox.
type place struct {
	bounds.Place

	fd int
}

func (p place) size() string { return strconv.FormatInt(p.Bytes, 10) }

// remount sets the sizes of directories. Only root may change mounts of a sandbox itself. Another user's server
// leaves that to a spawner, which has capabilities in the sandbox's user namespace.
func (s *Slot) remount(places []place) error {
	if s.jail.cfg.Mode == ModeRoot {
		for _, p := range places {
			if err := p.reconfigure(); err != nil {
				return err
			}
		}
		return nil
	}
	sc := &script{}
	sc.do("enter the sandbox", unix.SYS_SETNS, passed(0), num(unix.CLONE_NEWNS))
	for _, p := range places {
		sc.mount("none", p.Path, "tmpfs", unix.MS_REMOUNT|flagsOf(p.Place), "size="+p.size())
	}
	_, err := s.jail.once(nil, sc, s.gone, s.pidfd)
	return err
}

func (p place) reconfigure() error {
	fs, err := unix.Fspick(p.fd, "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err == nil {
		defer closeAll(fs)
		err = unix.FsconfigSetString(fs, "size", p.size())
	}
	if err == nil {
		err = unix.FsconfigReconfigure(fs)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	return nil
}

// check fails unless the directory has its size.
func (p place) check() error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(p.fd, &st); err != nil {
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	page := int64(os.Getpagesize())
	want := (p.Bytes + page - 1) / page * page
	if got := int64(st.Blocks) * st.Bsize; got != want {
		return fmt.Errorf("%s has %d bytes, want %d", p.Path, got, want)
	}
	return nil
}

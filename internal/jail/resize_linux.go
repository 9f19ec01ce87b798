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
}

// Lower lowers limits of init and of each of its children, and reads them back. Forks that wait for a
// program, and later ones, get the limits, too. Processes inherit them. A process that exists already and
// is not a child of init keeps its limits.
//
// Preconditions: those of ResizeWork. No program was started in the sandbox.
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
		now.limits = ""
		s.seen = &now
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
	return err
}

func lower(pid int, what string, limit int, to int64) error {
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

// ResizeWork changes the size of the sandbox's working directory. It reads the new size back from the
// kernel and fails if it is another. The directory may not hold more than that.
//
// Preconditions: ModeRoot, because only then the server may change mounts of sandboxes itself. It may
// not be called after Close.
func (s *Slot) ResizeWork(bytes int64) error {
	defer s.stale() // afterwards, so that no look from before is kept
	fs, err := unix.Fspick(s.Dirs[DirWork], "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("resize the working directory: %w", err)
	}
	defer closeAll(fs)
	if err = unix.FsconfigSetString(fs, "size", strconv.FormatInt(max(bytes, bounds.LeastBytes), 10)); err == nil {
		err = unix.FsconfigReconfigure(fs)
	}
	var st unix.Statfs_t
	if err == nil {
		err = unix.Fstatfs(s.Dirs[DirWork], &st)
	}
	if err != nil {
		return fmt.Errorf("resize the working directory: %w", err)
	}
	page := int64(os.Getpagesize())
	want := (max(bytes, bounds.LeastBytes) + page - 1) / page * page
	if got := int64(st.Blocks) * st.Bsize; got != want {
		return fmt.Errorf("resize the working directory: it has %d bytes, want %d", got, want)
	}
	return nil
}

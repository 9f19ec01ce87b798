package jail

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

// LowerCPUTime lowers the CPU time that init and each of its children may use, and reads the limits
// back. Forks that wait for a program, and later ones, get the limit, too. Processes inherit it. A process
// that exists already and is not a child of init keeps its limit.
//
// Preconditions: those of ResizeWork. No program was started in the sandbox.
func (s *Slot) LowerCPUTime(seconds int64) error {
	pid := s.PID()
	if pid == 0 || s.Ended() { // its process id may be another's by now
		return fmt.Errorf("lower the limit of CPU time: %w", ErrEnded)
	}
	if err := lowerCPUTime(pid, seconds); err != nil { // before its children are read, so that none comes with the old limit
		return err
	}
	dir := "/proc/" + strconv.Itoa(pid)
	children, err := os.ReadFile(dir + "/task/" + strconv.Itoa(pid) + "/children")
	if err != nil {
		return fmt.Errorf("lower the limit of CPU time: %w", err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		var n int
		if n, err = strconv.Atoi(child); err == nil {
			err = lowerCPUTime(n, seconds)
		}
		if err != nil {
			return err
		}
	}
	limits, err := os.ReadFile(dir + "/limits")
	if err != nil {
		return fmt.Errorf("lower the limit of CPU time: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowered = seconds
	s.changes++
	if s.seen != nil { // only the limits have changed
		now := *s.seen
		now.limits = string(limits)
		s.seen = &now
	}
	return nil
}

// lowerCPUTime lowers the limit of one process and reads it back.
func lowerCPUTime(pid int, seconds int64) error {
	want := unix.Rlimit{Cur: uint64(seconds), Max: uint64(seconds)}
	var got unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_CPU, &want, nil)
	if err == nil {
		err = unix.Prlimit(pid, unix.RLIMIT_CPU, nil, &got)
	}
	if err == nil && got != want {
		err = fmt.Errorf("it is %d s", got.Cur)
	}
	if err != nil {
		return fmt.Errorf("lower the limit of CPU time of process %d to %d s: %w", pid, seconds, err)
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

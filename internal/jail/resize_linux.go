package jail

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

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

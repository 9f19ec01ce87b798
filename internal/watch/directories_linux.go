package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxDirectories is how many directories the programs of a sandbox may have open. As long as a directory is open, a
// file system may keep the names that it has read from it. No memory limit counts them. ext4 keeps one block of
// names, which is up to 22 KiB, and Btrfs 4 KiB.
const maxDirectories = 4096

// overDirectories returns a description if the processes have too many directories open, and "" otherwise. It
// looks at single descriptors only if there may be so many. The result of that may be the one of processes that
// were asked about before.
func (s *Target) overDirectories(processes []string) string {
	sum := 0
	for _, p := range processes {
		sum += countFiles("/proc/" + p + "/fd")
	}
	if sum <= maxDirectories {
		return ""
	}
	excess, done := s.directories.ask(func() string { return excessOfDirectories(processes, maxDirectories) })
	if !done {
		s.counted = -idleCPU // count it again
	}
	return excess
}

// excessOfDirectories is overDirectories for a bound. Descriptors that a process hides count as directories.
func excessOfDirectories(processes []string, most int) string {
	found := 0
	for _, p := range processes {
		dir := "/proc/" + p + "/fd"
		names, err := readNames(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			if info, err := os.Stat(dir); err == nil {
				found += int(info.Size()) // before Linux 6.2 the kernel does not tell
			}
		}
		for _, name := range names {
			var st unix.Statx_t // without asking a server for it
			if unix.Statx(unix.AT_FDCWD, dir+"/"+name, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				found++
			}
			if found > most {
				return fmt.Sprintf("more than %d open directories", most)
			}
		}
	}
	return ""
}

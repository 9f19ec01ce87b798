package host

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openTree opens a directory of the settings. No part of its path may be a link, also not if it is swapped meanwhile: a program in a
// sandbox may change a directory above it. The caller closes it.
func openTree(real string) (*os.Root, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, real, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, errLink
	case errors.Is(err, unix.ENOSYS):
		return openChecked(real)
	case err != nil:
		return nil, err
	}
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
	return root, errors.Join(err, unix.Close(fd))
}

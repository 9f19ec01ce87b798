package jail

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const largePage = 2 << 20 // if those of the kernel have another size, inLargePages has no effect

// inLargePages moves the contents of a memory file of size bytes into large pages, and extends the file to whole ones. Processes map
// the file in pages of 4 KiB nevertheless, because they write to many of them. But the kernel maps and unmaps all pages of a large
// one that lie side by side in one step. A kernel before Linux 6.1, or one without large pages, returns an error. The file is then as
// before, but may be longer.
//
// Preconditions: the file is not sealed. It has no mapping afterwards, because F_SEAL_WRITE fails while there is one.
func inLargePages(fd int, size int64) error {
	length := uintptr(size+largePage-1) &^ (largePage - 1)
	if err := unix.Ftruncate(fd, int64(length)); err != nil {
		return fmt.Errorf("extend to whole large pages: %w", err)
	}
	space, err := unix.MmapPtr(-1, 0, nil, length+largePage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("find an aligned address: %w", err)
	}
	defer func() { _ = unix.MunmapPtr(space, length+largePage) }()
	at := unsafe.Add(space, -uintptr(space)&(largePage-1))
	if _, err = unix.MmapPtr(fd, 0, at, length, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return fmt.Errorf("map: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(at), length, unix.MADV_COLLAPSE); errno != 0 {
		return fmt.Errorf("collapse: %w", errno)
	}
	return nil
}

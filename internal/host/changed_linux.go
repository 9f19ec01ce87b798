package host

import (
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// changedAt returns when the inode of a file was changed, in nanoseconds.
func changedAt(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return 0
}

// ofKernel reports whether a file shows what the kernel has, such as the memory of this server, wherever it is mounted.
func ofKernel(f *os.File) bool {
	var fs unix.Statfs_t
	kinds := []int64{unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.EFIVARFS_MAGIC}
	return unix.Fstatfs(int(f.Fd()), &fs) != nil || slices.Contains(kinds, int64(fs.Type)) //nolint:unconvert // its type differs between architectures
}

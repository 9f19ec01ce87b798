package host

import (
	"os"
	"syscall"
)

// changedAt returns when the inode of a file was changed, in nanoseconds.
func changedAt(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return 0
}

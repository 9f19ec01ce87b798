//go:build !linux

package host

import "os"

// changedAt returns when the content of a file was changed, in nanoseconds: when its inode was is not known.
func changedAt(info os.FileInfo) int64 { return info.ModTime().UnixNano() }

// ofKernel reports whether a file shows what the kernel has. Other systems have no such files.
func ofKernel(*os.File) bool { return false }

//go:build !linux

package host

import "os"

// changedAt returns when the content of a file was changed, in nanoseconds: when its inode was is not known.
func changedAt(info os.FileInfo) int64 { return info.ModTime().UnixNano() }

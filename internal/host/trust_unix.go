//go:build unix

package host

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// onlyDirectory is the flag with which the kernel opens directories only. It does not wait for a FIFO.
const onlyDirectory = syscall.O_DIRECTORY | syscall.O_NONBLOCK

// onlyRoot reports whether only root can change a file: it and every directory above it belong
// to root, and no other user may write to them. No directory of the path is a link.
func onlyRoot(path string) bool {
	for {
		info, err := os.Lstat(path)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		link := info.Mode()&os.ModeSymlink != 0 // its mode has no meaning
		if !ok || st.Uid != 0 || !link && info.Mode().Perm()&0o022 != 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}

// mayClose reports whether a link in a home directory may close what it leads to: the home belongs to root or to the user of
// this program, or both belong to one user.
func mayClose(home, to os.FileInfo) bool {
	from, ok := home.Sys().(*syscall.Stat_t)
	st, known := to.Sys().(*syscall.Stat_t)
	return !ok || !known || from.Uid == 0 || int(from.Uid) == os.Geteuid() || from.Uid == st.Uid
}

// links returns how many names a file has.
func links(info os.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return uint64(st.Nlink) //nolint:unconvert // its type differs between platforms
}

// stored returns how many bytes a file or directory takes on its file system.
func stored(info os.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return int(min(st.Blocks, maxHome)) * 512
}

// keepOwner gives a new file the owner of the one that it replaces, if that is permitted.
func keepOwner(f *os.File, old os.FileInfo) {
	if st, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}

// ownerOf returns the user and the group that own a directory if the server is root, and nil if it is not. Programs in sandboxes have
// their rights in a writable workspace.
func ownerOf(dir string) *account {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 || runtime.GOOS != "linux" {
		return nil
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 {
		return nil
	}
	return &account{uid: int(st.Uid), gid: int(st.Gid)}
}

// readableBy reports whether the mode of a file lets a user read it. nil is the user of the server.
func readableBy(as *account, info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if as == nil || !ok {
		return as == nil
	}
	shift := 0 // others
	switch {
	case int(st.Uid) == as.uid:
		shift = 6
	case int(st.Gid) == as.gid:
		shift = 3
	}
	return info.Mode().Perm()>>shift&4 != 0
}

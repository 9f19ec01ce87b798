//go:build unix

package runtimes

import (
	"context"
	"io/fs"
	"os/exec"
	"syscall"
)

func identify(info fs.FileInfo) fileID {
	id := fileID{Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.Inode = st.Ino
	}
	return id
}

// onlyRootWrites reports whether only root can change the file.
func onlyRootWrites(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 {
		return false
	}
	groupOK := info.Mode()&0o020 == 0 || st.Gid == 0
	return groupOK && info.Mode()&0o002 == 0
}

// ownedByUs reports whether only the process's user can write to the file.
func ownedByUs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == syscall.Geteuid() && info.Mode()&0o022 == 0
}

// command returns a command whose whole process group is killed when ctx ends. A shim is a
// script, and its children must not outlive it.
func command(ctx context.Context, path string, args []string) *exec.Cmd {
	c := exec.CommandContext(ctx, path, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}

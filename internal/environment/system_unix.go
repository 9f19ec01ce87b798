//go:build linux || darwin

package environment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// fileID changes when a file is replaced or changed.
type fileID struct {
	size, mtime int64
	inode       uint64
}

func identify(name string) (fileID, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return fileID{}, err
	}
	id := fileID{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.inode = st.Ino
	}
	return id, nil
}

// onlyOursWrite reports whether only the process's user or root can change a file.
func onlyOursWrite(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(st.Uid) == os.Geteuid() || st.Uid == 0) && info.Mode()&0o022 == 0
}

// command returns a command whose whole process group is killed when ctx ends.
func command(ctx context.Context, argv []string) *exec.Cmd {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	return c
}

// lock waits until no other process changes the sets. It creates the directory of sets.
func (l *Library) lock(ctx context.Context) (unlock func(), err error) {
	if err = os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, broken(err)
	}
	if err = Private(l.dir); err != nil {
		return nil, broken(err)
	}
	f, err := os.OpenFile(filepath.Join(l.dir, lockName), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, broken(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(broken(fmt.Errorf("lock: %w", err)), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(cancelled(ctx), f.Close())
		case <-tick.C:
		}
	}
}

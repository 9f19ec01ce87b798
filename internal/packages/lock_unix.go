//go:build linux || darwin

package packages

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// lockFile opens and locks the lock of a tree. An exclusive lock fails with errHeld if any
// other lock is held. A shared one waits for the removal of a tree to end. The lock ends when
// the file is closed.
func (p *Packages) lockFile(digest string, exclusive bool) (*os.File, error) {
	if err := p.makeDirs(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(p.cfg.Dir, locksDir, digest), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX | syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errHeld
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

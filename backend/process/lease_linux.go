package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	idsPerBlock = 65536
	leaseDir    = "/run/sandboxmcp" // host-wide: two servers must not share a block
)

// lease is a block of host user ids that no other server uses while it is held.
// Each block is one byte of a file under an advisory lock, which the kernel
// gives back when the holder dies.
type lease struct {
	f     *os.File
	first int
}

// leaseBlock takes the first free block of the range.
func leaseBlock(r UIDRange, dir string) (*lease, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("lease user ids: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "uids.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lease user ids: %w", err)
	}
	blocks := (r.Last - r.First + 1) / idsPerBlock
	for i := range blocks {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(r.First/idsPerBlock + i), Len: 1}
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
		if err == nil {
			return &lease{f, r.First + i*idsPerBlock}, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			break
		}
	}
	_ = f.Close()
	if err == nil {
		return nil, fmt.Errorf("lease user ids: the range %d-%d holds no block of %d", r.First, r.Last, idsPerBlock)
	}
	return nil, fmt.Errorf("lease user ids: none of %d blocks is free: %w", blocks, err)
}

func (l *lease) release() {
	if l != nil {
		_ = l.f.Close()
	}
}

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// ErrLeased says that a lease is held by another process, or by another caller in this
// one.
var ErrLeased = errors.New("another process holds the lease")

// Pauses of [Store.Lease] between two tries. Each is twice the one before.
const (
	leaseFirst = time.Millisecond
	leaseLast  = 128 * time.Millisecond
)

// Lease is the right of one holder to do something, among all processes that share a
// state directory. It is a lock of the kernel (flock) on a file there. The kernel frees
// it when the holder's process ends, also by kill -9: no heartbeat, no process number
// and no clock decides. A lease costs one descriptor while it is held, and nothing else.
//
// Call [Lease.Release] or [Lease.Discard] once.
type Lease struct {
	f *os.File
}

// Lease waits until the lease of that name is free and takes it. name is the path of the
// file below the state directory; directories on the way are made. If ctx ends first,
// the error is ctx's. A waiter tries after 1 ms, 2 ms, 4 ms … and then eight times a
// second. Waiters have no order.
func (s *Store) Lease(ctx context.Context, name string) (*Lease, error) {
	path, err := s.leasePath(name)
	if err != nil {
		return nil, err
	}
	l, err := waitLease(ctx, path)
	if err != nil {
		return nil, s.explain("locked", err)
	}
	return l, nil
}

// TryLease takes the lease of that name if it is free. If it is not, the error is
// [ErrLeased].
func (s *Store) TryLease(name string) (*Lease, error) {
	path, err := s.leasePath(name)
	if err != nil {
		return nil, err
	}
	l, err := tryLease(path)
	if err != nil && !errors.Is(err, ErrLeased) {
		return nil, s.explain("locked", err)
	}
	return l, err
}

// Leased reports whether a process holds the lease of that name. It makes no file. What
// cannot be found out counts as held. A TryLease at the same moment can fail because of
// it.
func (s *Store) Leased(name string) bool {
	path, err := s.leasePath(name)
	if err != nil {
		return false
	}
	f, err := plainfile.Open(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = f.Close() }()
	return tryLock(f, false) != nil
}

// Release frees the lease. Its file stays for the next holder.
func (l *Lease) Release() error { return l.f.Close() }

// Discard removes the file, or the directory with all that is in it, and frees the
// lease. It is for names that are used once.
func (l *Lease) Discard() error { return errors.Join(os.RemoveAll(l.f.Name()), l.f.Close()) }

func (s *Store) leasePath(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("the name of a lease is not a path below the state directory: %q", name)
	}
	return filepath.Join(s.dir, name), nil
}

func waitLease(ctx context.Context, path string) (*Lease, error) {
	t := time.NewTimer(0)
	defer t.Stop()
	for pause := leaseFirst; ; pause = min(2*pause, leaseLast) {
		l, err := tryLease(path)
		if !errors.Is(err, ErrLeased) {
			return l, err
		}
		t.Reset(pause)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}

// tryLease takes the lease on a file or a directory.
func tryLease(path string) (*Lease, error) {
	for {
		f, err := openLease(path)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), dirMode); err == nil {
				f, err = openLease(path)
			}
		}
		if err != nil {
			return nil, err
		}
		current, err := lockCurrent(f, path)
		if err == nil && current {
			return &Lease{f}, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// lockCurrent locks an open file. current is false if its holder has discarded it
// meanwhile: then a lock on it keeps nobody out.
func lockCurrent(f *os.File, path string) (current bool, err error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !opened.Mode().IsRegular() && !opened.IsDir() {
		return false, &fs.PathError{Op: "lock", Path: path, Err: plainfile.ErrNotRegular}
	}
	if err = tryLock(f, true); err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

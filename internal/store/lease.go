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

// ErrLeased means that another process, or another caller in this process, holds the lease.
var ErrLeased = errors.New("another process holds the lease")

// Pauses between two attempts of [Store.Lease]. Each is twice as long as the one before.
const (
	leaseFirst = time.Millisecond
	leaseLast  = 128 * time.Millisecond
)

// Lease is an exclusive right among all processes that share a state directory. It is a
// kernel lock (flock) on a file in that directory. The kernel frees it when the holder's
// process ends, even by kill -9, so no heartbeat, process id or clock is involved. A held
// lease costs one descriptor.
//
// In a PostgreSQL database it is an advisory lock, which the server frees when the holder's
// connection ends. All leases of a Store have one connection.
//
// Call either [Lease.Release] or [Lease.Discard], once.
type Lease struct {
	f       *os.File
	release func() error // not nil: the lease is in PostgreSQL, and f is nil
}

// Lease waits until the lease called name is free and takes it. name is a path below the
// state directory; missing directories are made. If ctx ends first, the error is that of
// ctx. It tries after 1 ms, 2 ms, 4 ms … and then eight times a second. The order of
// waiting callers is not defined.
func (s *Store) Lease(ctx context.Context, name string) (*Lease, error) {
	path, err := s.leasePath(name)
	if err != nil {
		return nil, err
	}
	l, err := waitLease(ctx, func() (*Lease, error) { return s.tryLease(ctx, name, path) })
	if err != nil {
		return nil, s.explain("locked", err)
	}
	return l, nil
}

func (s *Store) tryLease(ctx context.Context, name, path string) (*Lease, error) {
	if s.pg == nil {
		return tryLease(path)
	}
	if err := s.pg.leases.try(ctx, name); err != nil {
		return nil, err
	}
	return &Lease{release: func() error { return s.pg.leases.release(name) }}, nil //nolint:contextcheck // the lease outlives the call that takes it
}

// TryLease takes the lease called name if it is free, and otherwise fails with [ErrLeased].
func (s *Store) TryLease(ctx context.Context, name string) (*Lease, error) {
	path, err := s.leasePath(name)
	if err != nil {
		return nil, err
	}
	l, err := s.tryLease(ctx, name, path)
	if err != nil && !errors.Is(err, ErrLeased) {
		return nil, s.explain("locked", err)
	}
	return l, err
}

// Leased reports whether a process holds the lease called name. It makes no file. If it
// cannot find out, it returns true. A TryLease at the same moment may fail because of it.
func (s *Store) Leased(ctx context.Context, name string) bool {
	path, err := s.leasePath(name)
	if err != nil {
		return false
	}
	if s.pg != nil {
		return s.pg.leases.leased(ctx, name)
	}
	f, err := plainfile.Open(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = f.Close() }()
	return tryLock(f, false) != nil
}

// Release frees the lease. Its file stays for later holders.
func (l *Lease) Release() error {
	if l.release != nil {
		return l.release()
	}
	return l.f.Close()
}

// Discard removes the file, or the directory with its content, and frees the lease. Use it
// for names that are used only once.
func (l *Lease) Discard() error {
	if l.release != nil {
		return l.release()
	}
	return errors.Join(os.RemoveAll(l.f.Name()), l.f.Close())
}

func (s *Store) leasePath(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("the name of a lease is not a path below the state directory: %q", name)
	}
	return filepath.Join(s.dir, name), nil
}

// waitLease calls try until the lease is free or ctx ends.
func waitLease(ctx context.Context, try func() (*Lease, error)) (*Lease, error) {
	t := time.NewTimer(0)
	defer t.Stop()
	for pause := leaseFirst; ; pause = min(2*pause, leaseLast) {
		l, err := try()
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

// tryLease takes the lease of a file or a directory.
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
			return &Lease{f: f}, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// lockCurrent locks an open file. current is false if its previous holder has discarded the
// file meanwhile: a lock on a removed file excludes no other process.
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
	return isCurrent(f, path)
}

// isCurrent reports whether path still names an open file.
func isCurrent(f *os.File, path string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

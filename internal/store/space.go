package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// If a file system has less free space than one of these, no new work is accepted.
const (
	minFree      = 256 << 20
	minFreeShare = 20 // 1/20: 5 %

	spaceEvery = time.Second // how long an answer of the kernel is reused
)

// FreeSpace returns how many bytes of a directory's file system an ordinary user may still
// use, and the size of the file system.
type FreeSpace func(dir string) (free, total uint64, err error)

// spaceCheck caches the last answer for spaceEvery.
type spaceCheck struct {
	free FreeSpace
	now  func() time.Time

	mu   sync.Mutex
	next time.Time // time of the next call of the kernel
	err  error
}

func newSpaceCheck(cfg Config) *spaceCheck {
	c := &spaceCheck{free: cfg.Free, now: cfg.Now}
	if c.free == nil {
		c.free = freeSpace
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c
}

// CheckSpace fails with [sandboxmcp.CodeBackendUnavailable] if less than 256 MiB or 5 % is
// free on the file system of the state directory or of the database. The error names the
// directory. CheckSpace asks the kernel at most once a second. It returns nil for a file
// system that does not report its free space.
func (s *Store) CheckSpace() error {
	c := s.space
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Before(c.next) {
		return c.err
	}
	c.next, c.err = now.Add(spaceEvery), nil
	dirs := []string{s.dir}
	if s.path != MemoryPath {
		dirs = append(dirs, filepath.Dir(s.path))
	}
	for _, dir := range slices.Compact(dirs) {
		free, total, err := c.free(dir)
		if err != nil {
			s.log.Debug("look for free space", "dir", dir, "error", err)
			continue
		}
		if tooFull(free, total) {
			c.err = &sandboxmcp.Error{
				Code:    sandboxmcp.CodeBackendUnavailable,
				Message: fmt.Sprintf("the file system of %s has %d MiB free of %d MiB; runs need 256 MiB and 5 %%", dir, free>>20, total>>20),
				Hint:    "free some space, or set SANDBOXMCP_STATE_DIR to a directory on another disk",
			}
			break
		}
	}
	return c.err
}

// Temp returns an empty file in the state directory that has no name, for a content of size bytes.
// It is gone when the caller closes it or the process ends. Temp fails with
// [sandboxmcp.CodeBackendUnavailable] if the file system would have less free space than
// [Store.CheckSpace] asks for once the content is written.
func (s *Store) Temp(size int64) (*os.File, error) {
	f, err := s.blobs.create()
	if err != nil {
		return nil, s.explain("written", err)
	}
	if err = os.Remove(f.Name()); err == nil {
		err = s.space.fits(filepath.Dir(f.Name()), uint64(max(size, 0)))
	} else {
		err = s.explain("written", err)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Spare fails with [sandboxmcp.CodeBackendUnavailable] if the file system of the state directory
// would have less free space than [Store.CheckSpace] asks for with so many bytes more.
func (s *Store) Spare(bytes int64) error { return s.space.fits(s.dir, uint64(max(bytes, 0))) }

// fits fails if a directory's file system has too little space left after size bytes more.
func (c *spaceCheck) fits(dir string, size uint64) error {
	free, total, err := c.free(dir)
	if err != nil || free >= size && !tooFull(free-size, total) { // as CheckSpace, trusts a file system that does not tell
		return nil //nolint:nilerr // said above
	}
	return &sandboxmcp.Error{
		Code:    sandboxmcp.CodeBackendUnavailable,
		Message: fmt.Sprintf("%d MiB do not fit: the file system of %s has %d MiB free of %d MiB, and 256 MiB and 5 %% stay free", size>>20, dir, free>>20, total>>20),
		Hint:    "free some space, or set SANDBOXMCP_STATE_DIR to a directory on another disk",
	}
}

// tooFull reports whether a file system has less free space than work needs.
func tooFull(free, total uint64) bool { return free < minFree || free < total/minFreeShare }

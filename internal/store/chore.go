package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// Chore is work on a state directory that processes do one at a time and now and then, such
// as a sweep. A file in the directory says by its time when it was last done.
type Chore struct {
	Store *Store
	Lease string           // name of the lease that is held meanwhile
	Mark  string           // name of the file
	Now   func() time.Time // nil: the machine's clock
}

// Shared reports whether other processes share the state. A database in memory is not
// shared, and needs no chore when its process ends.
func (c Chore) Shared() bool { return c.Store.Path() != MemoryPath }

// Done reports whether a process has done the chore within that time. A mark in the future
// says nothing: the clock was set back since.
func (c Chore) Done(within time.Duration) bool {
	st, err := os.Stat(c.mark())
	if err != nil {
		return false
	}
	age := c.now().Sub(st.ModTime())
	return age > -within && age < within
}

func (c Chore) mark() string { return filepath.Join(c.Store.Dir(), c.Mark) }

func (c Chore) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// Do calls work while no other process does the chore, and marks the chore as done if work
// returns true. If within is above 0 and a process has done it within that time, Do does
// nothing. If ctx ends while another process is at it, the error is ctx's.
func (c Chore) Do(ctx context.Context, within time.Duration, work func() bool) error {
	if !c.Shared() {
		work()
		return nil
	}
	lease, err := c.Store.Lease(ctx, c.Lease)
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release() }()
	if within > 0 && c.Done(within) || !work() {
		return nil
	}
	f, err := plainfile.Append(c.mark(), 0o600)
	if err == nil {
		now := c.now()
		err = errors.Join(f.Close(), os.Chtimes(c.mark(), now, now))
	}
	if err != nil {
		return fmt.Errorf("mark %s: %w", c.Mark, err)
	}
	return nil
}

package sandboxmcp

import (
	"context"
	"io"
	"time"
)

// Objects is an object store, in which the servers of several machines keep files and large
// outputs. Its methods may be called concurrently. If there is no object of a name, Get and Stat
// fail with [fs.ErrNotExist].
type Objects interface {
	// Put stores size bytes of r, and replaces an object of that name.
	Put(ctx context.Context, name string, r io.ReadSeeker, size int64) error

	// Get opens an object for reading. The caller closes it.
	Get(ctx context.Context, name string) (io.ReadCloser, error)

	// Stat returns an object's size and the time when it was put.
	Stat(ctx context.Context, name string) (size int64, put time.Time, err error)

	// Remove removes an object. A missing one is no error.
	Remove(ctx context.Context, name string) error

	// List calls each for the objects whose names begin with a prefix.
	List(ctx context.Context, prefix string, each func(name string, put time.Time) error) error
}

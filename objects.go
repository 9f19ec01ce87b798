package sandboxmcp

import (
	"context"
	"io"
)

// Objects is an object store, in which the servers of several machines keep files and large
// outputs. Its methods may be called concurrently. This program removes no object: a rule of the
// store drops those that were put long ago.
type Objects interface {
	// Put stores size bytes of r, and replaces an object of that name.
	Put(ctx context.Context, name string, r io.ReadSeeker, size int64) error

	// Get opens an object for reading. The caller closes it. If there is no object of that name, Get
	// fails with [fs.ErrNotExist].
	Get(ctx context.Context, name string) (io.ReadCloser, error)
}

package storetest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// Objects is an object store in memory. Tests change and read it by its methods.
type Objects struct {
	mu    sync.Mutex
	all   map[string][]byte
	fail  error
	hangs bool
}

// Fail lets every later call return err; nil: none.
func (o *Objects) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail = err
}

// Names returns the names of all objects.
func (o *Objects) Names() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.all))
}

// Change replaces the bytes of an object; nil: it is removed.
func (o *Objects) Change(name string, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.all, name); data != nil {
		o.all[name] = data
	}
}

// Hang lets every later call wait until its context ends.
func (o *Objects) Hang() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hangs = true
}

// ready returns the error of a call.
func (o *Objects) ready(ctx context.Context) error {
	o.mu.Lock()
	hangs, fail := o.hangs, o.fail
	o.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	return cmp.Or(ctx.Err(), fail)
}

// Put implements sandboxmcp.Objects.
func (o *Objects) Put(ctx context.Context, name string, r io.ReadSeeker, size int64) error {
	data, err := io.ReadAll(r)
	if err == nil && int64(len(data)) != size {
		err = io.ErrUnexpectedEOF
	}
	if err = cmp.Or(err, o.ready(ctx)); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string][]byte{}
	}
	o.all[name] = data
	return nil
}

// Get implements sandboxmcp.Objects.
func (o *Objects) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := o.ready(ctx); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	data, ok := o.all[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

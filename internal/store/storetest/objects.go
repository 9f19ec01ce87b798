package storetest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Objects is an object store in memory. Tests change and read it by its methods.
type Objects struct {
	mu   sync.Mutex
	all  map[string]object
	fail error
}

type object struct {
	data []byte
	put  time.Time
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

// Change replaces the bytes of an object, and makes it older by age.
func (o *Objects) Change(name string, data []byte, age time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.all[name]
	if data == nil {
		data = old.data
	}
	o.all[name] = object{data, old.put.Add(-age)}
}

// Put implements sandboxmcp.Objects.
func (o *Objects) Put(ctx context.Context, name string, r io.ReadSeeker, size int64) error {
	data, err := io.ReadAll(r)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && int64(len(data)) != size {
		err = io.ErrUnexpectedEOF
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || o.fail != nil {
		return cmp.Or(err, o.fail)
	}
	if o.all == nil {
		o.all = map[string]object{}
	}
	o.all[name] = object{data, time.Now()}
	return nil
}

// Get implements sandboxmcp.Objects.
func (o *Objects) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	found, err := o.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(found.data)), nil
}

// Stat implements sandboxmcp.Objects.
func (o *Objects) Stat(ctx context.Context, name string) (size int64, put time.Time, err error) {
	found, err := o.find(ctx, name)
	return int64(len(found.data)), found.put, err
}

// Remove implements sandboxmcp.Objects.
func (o *Objects) Remove(ctx context.Context, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := cmp.Or(ctx.Err(), o.fail); err != nil {
		return err
	}
	delete(o.all, name)
	return nil
}

// List implements sandboxmcp.Objects.
func (o *Objects) List(ctx context.Context, prefix string, each func(name string, put time.Time) error) error {
	for _, name := range o.Names() {
		found, err := o.find(ctx, name)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if err := each(name, found.put); err != nil {
			return err
		}
	}
	return nil
}

func (o *Objects) find(ctx context.Context, name string) (object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := cmp.Or(ctx.Err(), o.fail); err != nil {
		return object{}, err
	}
	found, ok := o.all[name]
	if !ok {
		return object{}, fs.ErrNotExist
	}
	return found, nil
}

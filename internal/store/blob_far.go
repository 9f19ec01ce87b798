package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	// putTime bounds the time in which an object is put, besides that for its bytes.
	putTime = 30 * time.Second
	// slowest is the assumed number of bytes that the slowest way to an object store carries in a second.
	slowest = 1 << 20
)

// farBlobs are the blobs of a database in an object store. The zero value has none. A blob is put again
// whenever a result has it, and no server removes one. A rule of the store drops old objects, so nothing has to
// be decided between servers.
type farBlobs struct {
	objects sandboxmcp.Objects
	prefix  string // of the names: the id of the database
}

// objectError is an error of an object store.
type objectError struct{ error }

func (e *objectError) Unwrap() error { return e.error }

func (f farBlobs) name(sum string) string { return f.prefix + "/" + sum[:2] + "/" + sum }

// put stores a blob, also one that is there already: its age begins anew.
func (f farBlobs) put(ctx context.Context, sum string, r io.ReadSeeker, size int64) error {
	if f.objects == nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, putTime+time.Duration(size/slowest)*time.Second)
	defer cancel()
	return failed(ctx, f.objects.Put(within, f.name(sum), r, size))
}

// failed returns an error of an object store as such. A caller that gives up gets its own error.
func failed(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &objectError{err}
}

// fetch writes a blob to dst. It fails if the content has another SHA-256.
func (f farBlobs) fetch(ctx context.Context, sum string, dst io.Writer) (size int64, err error) {
	r, err := f.objects.Get(ctx, f.name(sum))
	if err != nil {
		return 0, failed(ctx, err)
	}
	defer r.Close()
	h := sha256.New()
	src := &source{ctx: ctx, r: r}
	size, err = io.Copy(io.MultiWriter(h, dst), src)
	switch {
	case src.err != nil:
		return 0, failed(ctx, src.err)
	case err != nil:
		return 0, err
	case hex.EncodeToString(h.Sum(nil)) != sum:
		return 0, &objectError{fmt.Errorf("the object %s was changed: it has another SHA-256", f.name(sum))}
	}
	return size, nil
}

// cache makes the file of a blob that only the object store has.
func (s *Store) cache(ctx context.Context, sum string) (err error) {
	f, err := s.blobs.create()
	if err != nil {
		return s.explain("written", err)
	}
	defer func() {
		f.Close()
		if rerr := os.Remove(f.Name()); err == nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = s.explain("written", rerr)
		}
	}()
	size, err := s.far.fetch(ctx, sum, f)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = s.blobs.finish(f.Name(), sum, size)
	}
	if err != nil {
		return s.explain("read", err)
	}
	return nil
}

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
	"path/filepath"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	// cachedFor is how long a machine keeps the file of a blob that Objects has as well.
	cachedFor = time.Hour
	// objectTime bounds a request to Objects that an Op waits for, because no other Update of any
	// server is committed meanwhile.
	objectTime = 5 * time.Second
	// objectShards is how many parts of the blobs one sweep of Objects lists.
	objectShards = 8
)

// farBlobs are the blobs of a database in Objects. The zero value has none.
type farBlobs struct {
	objects sandboxmcp.Objects
	prefix  string // of the names: the id of the database, because a sweep removes blobs that it does not name
}

// objectError is an error of Objects.
type objectError struct{ error }

func (e *objectError) Unwrap() error { return e.error }

func (f farBlobs) name(sum string) string { return f.prefix + "/" + sum[:2] + "/" + sum }

// put stores a blob in Objects. A blob that is there already is put again, so that a sweep spares it.
func (f farBlobs) put(ctx context.Context, sum string, r io.ReadSeeker, size int64) error {
	if f.objects == nil {
		return nil
	}
	if err := f.objects.Put(ctx, f.name(sum), r, size); err != nil {
		return &objectError{err}
	}
	return nil
}

// fetch writes the blob of Objects to dst. It fails if the content has another SHA-256.
func (f farBlobs) fetch(ctx context.Context, sum string, dst io.Writer) (size int64, err error) {
	r, err := f.objects.Get(ctx, f.name(sum))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err != nil {
		return 0, &objectError{err}
	}
	defer r.Close()
	h := sha256.New()
	src := &source{ctx: ctx, r: r}
	size, err = io.Copy(io.MultiWriter(h, dst), src)
	switch {
	case src.err != nil:
		return 0, &objectError{src.err}
	case err != nil:
		return 0, err
	case hex.EncodeToString(h.Sum(nil)) != sum:
		return 0, &objectError{fmt.Errorf("the object %s was changed: it has another SHA-256", f.name(sum))}
	}
	return size, nil
}

// stat returns the size of a blob in Objects and its age. A missing one has the size -1.
func (f farBlobs) stat(ctx context.Context, sum string) (size int64, put time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	size, put, err = f.objects.Stat(ctx, f.name(sum))
	if errors.Is(err, fs.ErrNotExist) {
		return -1, put, nil
	}
	if err != nil {
		return 0, put, &objectError{err}
	}
	return size, put, nil
}

// discard removes a blob of Objects that was put before that time.
func (f farBlobs) discard(ctx context.Context, sum string, before time.Time) error {
	size, put, err := f.stat(ctx, sum)
	if err != nil || size < 0 || !put.Before(before) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	if err = f.objects.Remove(ctx, f.name(sum)); err != nil {
		return &objectError{err}
	}
	return nil
}

// old returns the blobs of a shard in Objects that were put before that time.
func (f farBlobs) old(ctx context.Context, shard int, before time.Time) (sums []string, err error) {
	begin := f.prefix + fmt.Sprintf("/%02x/", shard)
	err = f.objects.List(ctx, begin, func(name string, put time.Time) error {
		if sum := name[len(begin):]; isSum(sum) && f.name(sum) == name && put.Before(before) {
			sums = append(sums, sum)
		}
		return nil
	})
	if err != nil {
		return nil, &objectError{err}
	}
	return sums, nil
}

// cache makes the file of a blob that only Objects has.
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

// uncache removes files of a shard that Objects has as well and that nothing has put for a while.
func (s *Store) uncache(ctx context.Context, shard int) error {
	err := sweep(ctx, filepath.Join(s.blobs.dir, fmt.Sprintf("%02x", shard)), time.Now().Add(-cachedFor))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// abandonedAfter is the age after which an unfinished blob counts as left behind by a
// killed process.
const abandonedAfter = time.Hour

// blobDir is the directory of the blobs. Its subdirectory tmp holds unfinished and
// discarded blobs. All others are at ab/abcd…, by their SHA-256.
type blobDir struct {
	dir     string
	passing bool // the database is in memory, so close removes the directory
	once    sync.Once
	err     error
	lease   *Lease // lease of dir, if passing is set and dir was created
}

// PutBlob stores data and returns its SHA-256 in hex. A blob that exists is not written
// again. Its modification time is set to now, so that a sweep of unreferenced blobs spares
// it. If the process is killed, the blob is complete or does not exist. A power cut may
// lose it.
func (s *Store) PutBlob(ctx context.Context, data []byte) (sum string, err error) {
	h := sha256.Sum256(data)
	sum = hex.EncodeToString(h[:])
	if s.blobs.keep(sum, int64(len(data))) {
		if err = s.far.put(ctx, sum, bytes.NewReader(data), int64(len(data))); err != nil {
			return "", s.explain("written", err)
		}
		return sum, nil
	}
	sum, _, err = s.PutBlobFrom(ctx, bytes.NewReader(data), int64(len(data)))
	return sum, err
}

// PutBlobFrom is [Store.PutBlob] for the bytes that r returns. It also returns their
// number. If there are more than limit bytes, it stores nothing and fails with
// [sandboxmcp.CodeFileTooLarge]. An error of r is returned wrapped.
func (s *Store) PutBlobFrom(ctx context.Context, r io.Reader, limit int64) (sum string, size int64, err error) {
	f, err := s.blobs.create()
	if err != nil {
		return "", 0, s.explain("written", err)
	}
	defer func() {
		f.Close()
		if rerr := os.Remove(f.Name()); err == nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = s.explain("written", rerr)
		}
	}()
	h := sha256.New()
	src := &source{ctx: ctx, r: io.LimitReader(r, limit+1)}
	size, err = io.Copy(io.MultiWriter(h, f), src)
	switch {
	case src.err != nil:
		return "", 0, fmt.Errorf("read a blob: %w", src.err)
	case err != nil:
		return "", 0, s.explain("written", err)
	case size > limit:
		return "", 0, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the content is longer than %d bytes", limit)
	}
	sum = hex.EncodeToString(h.Sum(nil))
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		err = s.far.put(ctx, sum, f, size)
	}
	if err == nil {
		err = f.Close() // some file systems report a full disk only here
	}
	if err == nil {
		err = s.blobs.finish(f.Name(), sum, size)
	}
	if err != nil {
		return "", 0, s.explain("written", err)
	}
	return sum, size, nil
}

// Elsewhere reports whether other machines may have blobs that this one cannot read: rows of a
// PostgreSQL database name the blobs of every server.
func (s *Store) Elsewhere() bool { return s.pg != nil && s.far.objects == nil }

// errChanged is the error of a blob whose content has another SHA-256 than its name.
var errChanged = errors.New("the content has another SHA-256")

// ReadBlob returns the content of the blob of that SHA-256. If there is no such blob, or sum is not a
// SHA-256, the error is [fs.ErrNotExist]. A content with another SHA-256 is an error. With an object
// store, ReadBlob first copies a blob that is not on this machine, or whose file was changed there, such
// as by a power cut.
func (s *Store) ReadBlob(ctx context.Context, sum string) ([]byte, error) {
	path, err := s.blobs.path(sum)
	if err != nil {
		return nil, err
	}
	data, err := readBlob(path, sum)
	if changed := errors.Is(err, errChanged); s.far.objects == nil || !changed && !errors.Is(err, fs.ErrNotExist) {
		return data, err
	} else if changed {
		if err = os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, s.explain("written", err)
		}
	}
	if err = s.cache(ctx, sum); err != nil {
		return nil, err
	}
	return readBlob(path, sum)
}

func readBlob(path, sum string) ([]byte, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read a blob: %w", err)
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInternal, "kept content was changed on disk: it does not have the SHA-256 %s", sum).WithCause(errChanged)
	}
	return data, nil
}

// HasBlob reports whether the blob exists and has that size. Inside an [Op] the answer
// holds until the transaction ends, because blobs are only discarded in an Op. With an object store
// it is true, because no server removes an object and the caller has put the blob just before.
func (s *Store) HasBlob(sum string, size int64) bool {
	return s.far.objects != nil || s.BlobSize(sum) == size
}

// BlobSize returns the size of a blob on this machine, or -1 if there is none.
func (s *Store) BlobSize(sum string) int64 {
	path, err := s.blobs.path(sum)
	if err != nil {
		return -1
	}
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() {
		return -1
	}
	return fi.Size()
}

// source is a reader that ends with a context. It records the reader's error separately, so
// that PutBlobFrom can distinguish it from a write error.
type source struct {
	ctx context.Context //nolint:containedctx // lives for one call
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if s.err = s.ctx.Err(); s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// isSum reports whether a text is a SHA-256 as blobs have it.
func isSum(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == text
}

func (b *blobDir) path(sum string) (string, error) {
	if !isSum(sum) {
		return "", &fs.PathError{Op: "open blob", Path: sandboxmcp.Quote(sum), Err: fs.ErrNotExist}
	}
	return filepath.Join(b.dir, sum[:2], sum), nil
}

// keep reports whether the blob exists, and sets its time to now. It returns false for a
// blob of another size: a power cut has truncated it, and it must be written again.
func (b *blobDir) keep(sum string, size int64) bool {
	path, err := b.path(sum)
	if err != nil {
		return false
	}
	if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() || fi.Size() != size {
		return false
	}
	now := time.Now()
	if os.Chtimes(path, now, now) != nil {
		return false
	}
	// The blob may have been discarded before its time was set.
	_, gone := os.Lstat(path)
	return gone == nil
}

func (b *blobDir) create() (*os.File, error) {
	if err := b.prepare(); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(b.dir, "tmp", rand.Text()), os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
}

// prepare makes the directories when it is first called.
func (b *blobDir) prepare() error {
	b.once.Do(func() {
		b.err = os.MkdirAll(filepath.Join(b.dir, "tmp"), dirMode)
		if b.err == nil && b.passing {
			b.lease, b.err = tryLease(b.dir)
		}
	})
	return b.err
}

// close removes the blobs of a database in memory. Other blobs stay.
func (b *blobDir) close() error {
	b.once.Do(func() { b.err = fs.ErrClosed })
	if b.lease == nil {
		return nil
	}
	return b.lease.Discard()
}

func (b *blobDir) finish(tmp, sum string, size int64) error {
	if b.keep(sum, size) {
		return nil
	}
	path, err := b.path(sum)
	if err != nil {
		return err
	}
	err = os.Rename(tmp, path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(filepath.Dir(path), dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(tmp, path)
}

// sweep removes the files of dir that are older than before.
func sweep(ctx context.Context, dir string, before time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil || fi.ModTime().After(before) {
			continue // removed meanwhile, or in use
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

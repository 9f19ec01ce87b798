package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// BlobShards is the number of parts that the blobs are in, one for each first byte of a
// SHA-256. A sweep of one part has a bounded cost.
const BlobShards = 256

// memoryBlobs is the prefix of a directory with the blobs of a database in memory. The
// directory is leased for as long as that database is there.
const memoryBlobs = "blobs-memory-"

// blobsOf returns the directory of a database's blobs. Each database of a state directory
// has one of its own, because a sweep removes blobs that the rows of its database do not
// name.
func (d database) blobsOf(dir string) (string, error) {
	if d.memory() {
		return filepath.Join(dir, memoryBlobs+rand.Text()), nil
	}
	own, err := os.Stat(d.path)
	if err != nil {
		return "", err
	}
	usual, err := os.Stat(filepath.Join(dir, databaseName))
	if err == nil && os.SameFile(own, usual) {
		return filepath.Join(dir, "blobs"), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	sum := sha256.Sum256([]byte(d.real))
	return filepath.Join(dir, "blobs-"+hex.EncodeToString(sum[:8])), nil
}

// OldBlobs returns the SHA-256 of the blobs of one shard, 0 to [BlobShards]-1, that were
// last put at least age ago. The caller knows which of them are referred to, and discards
// the others.
func (s *Store) OldBlobs(shard int, age time.Duration) ([]string, error) {
	dir := filepath.Join(s.blobs.dir, fmt.Sprintf("%02x", shard))
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, s.explain("read", err)
	}
	before := time.Now().Add(-age)
	var old []string
	for _, e := range entries {
		path, err := s.blobs.path(e.Name())
		if err != nil || filepath.Dir(path) != dir {
			continue // not ours
		}
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && fi.ModTime().Before(before) {
			old = append(old, e.Name())
		}
	}
	return old, nil
}

// DiscardBlob removes the blob unless it was put within that age. A PutBlob of the same
// content at the same moment keeps a blob: this one, or one that it writes anew. A blob
// that is not there is no error. [Store.RemoveDiscarded] frees the space.
//
// Preconditions: the caller is an [Op] that has seen that no row names the blob. Until its
// transaction ends, no other one can commit such a row.
func (s *Store) DiscardBlob(sum string, age time.Duration) error {
	if err := s.blobs.discard(sum, time.Now().Add(-age)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.explain("written", err)
	}
	return nil
}

func (b *blobDir) discard(sum string, before time.Time) error {
	path, err := b.path(sum)
	if err != nil {
		return err
	}
	fi, err := os.Lstat(path)
	if err != nil || !fi.ModTime().Before(before) {
		return err
	}
	if err = b.prepare(); err != nil {
		return err
	}
	aside := filepath.Join(b.dir, "tmp", rand.Text())
	if err = os.Rename(path, aside); err != nil {
		return err
	}
	// From here on no PutBlob can find it. One that found it before has set its time.
	fi, err = os.Lstat(aside)
	if err != nil {
		return err
	}
	if !fi.ModTime().Before(before) {
		return os.Rename(aside, path)
	}
	return os.Chtimes(aside, time.Unix(0, 0), time.Unix(0, 0))
}

// RemoveDiscarded frees the space of discarded blobs. It also removes unfinished blobs,
// and blobs of databases in memory, that killed processes left more than an hour ago.
func (s *Store) RemoveDiscarded(ctx context.Context) error {
	before := time.Now().Add(-abandonedAfter)
	if err := sweep(ctx, filepath.Join(s.blobs.dir, "tmp"), before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.explain("written", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return s.explain("read", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), memoryBlobs) {
			continue
		}
		if err := removeAbandoned(filepath.Join(s.dir, e.Name()), before); err != nil {
			return s.explain("written", err)
		}
	}
	return nil
}

// removeAbandoned removes a directory that was made before and that no process
// leases. A young one may be there before its owner has the lease.
func removeAbandoned(dir string, before time.Time) error {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || !fi.ModTime().Before(before) {
		return nil //nolint:nilerr // another process was faster
	}
	lease, err := tryLease(dir)
	if err != nil {
		return nil //nolint:nilerr // it is in use
	}
	return lease.Discard()
}

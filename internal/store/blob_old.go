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

// BlobShards is the number of parts into which the blobs are divided, by the first byte of
// the SHA-256. Sweeping one part at a time bounds the cost of a sweep.
const BlobShards = 256

// memoryBlobs is the name prefix of blob directories of databases in memory. Such a
// directory is leased while its database is open.
const memoryBlobs = "blobs-memory-"

// blobsOf returns the directory of a database's blobs. Each database in a state directory
// has its own, because a sweep removes all blobs that the rows of its database do not refer
// to.
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

// OldBlobs returns the SHA-256 of those blobs of a shard (0 to [BlobShards]-1) that were
// last put at least age ago. The caller discards those without references.
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
			continue // not written by this package
		}
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && fi.ModTime().Before(before) {
			old = append(old, e.Name())
		}
	}
	return old, nil
}

// DiscardBlob removes the blob unless it was put within the last age. If PutBlob stores the
// same content at the same moment, a blob stays: this one or a new one. A missing blob is
// not an error. [Store.RemoveDiscarded] frees the space.
//
// Preconditions: the caller is an [Op] that has checked that no row refers to the blob.
// Until its transaction ends, no other one can commit such a row.
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
	// PutBlob can no longer find the blob. A PutBlob that found it before has updated its
	// time, which is checked here.
	fi, err = os.Lstat(aside)
	if err != nil {
		return err
	}
	if !fi.ModTime().Before(before) {
		return os.Rename(aside, path)
	}
	return os.Chtimes(aside, time.Unix(0, 0), time.Unix(0, 0))
}

// RemoveDiscarded frees the space of discarded blobs. It also removes what killed processes
// left more than an hour ago: unfinished blobs, and blobs of databases in memory.
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

// removeAbandoned removes a directory that is older than before and that no process leases.
// A younger one is spared, because its owner may not have taken the lease yet.
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

package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// watchEvery is how often a [Watch.Wait] looks for changes of other processes.
const watchEvery = 100 * time.Millisecond

// Watch tells all processes that share a database of changes to one topic. A topic is
// what some rows of the database mean, such as "limits". Its version is a number that
// grows with each change. Methods may be called concurrently.
//
// [Watch.Update] changes rows and raises the version in one transaction. Once it has
// returned nil, [Watch.Version] returns the new version in every process, and every
// [Watch.Wait] for an older one returns. Changes are coalesced: several may pass while a
// process does not look, and it sees the last version alone. A version that was seen is
// committed, so rows that are read after it are at least as new.
//
// The version is a row of table signals. The size of a file beside the database, in
// bytes, announces it: a look costs one stat while nothing changes, and no connection to
// the database. The file is enlarged before the commit, so it is never behind the row. A
// process that dies between the two leaves the file ahead of the row: until the next
// change every look reads the row as well. No other process has a database in memory: its
// version is a number in memory.
//
// A Watch holds no descriptor, no goroutine and no connection. It costs nothing while
// nobody calls it. A Wait looks at once for a change of its own process, ten times a
// second for others, and ends with its context.
type Watch struct {
	store *Store
	topic string
	path  string // the file; empty: the database is in memory

	committed atomic.Int64 // the newest version that was seen; of a database in memory, the version

	mu    sync.Mutex
	moved chan struct{} // closed after the next Update of this process
}

// Watch returns the watch of a topic, the same one for each call. The name may hold
// small letters; the packages that own the rows name theirs.
func (s *Store) Watch(topic string) *Watch {
	s.watchMu.Lock()
	defer s.watchMu.Unlock()
	w := s.watches[topic]
	if w == nil {
		w = &Watch{store: s, topic: topic, moved: make(chan struct{})}
		if s.real != MemoryPath {
			w.path = signalFile(s.real, topic)
		}
		if s.watches == nil {
			s.watches = map[string]*Watch{}
		}
		s.watches[topic] = w
	}
	return w
}

// signalFile is the file whose size is the version of a topic. It lies beside the
// database like the files of SQLite, so all that share the one share the other.
func signalFile(database, topic string) string { return database + "-" + topic }

// Version returns the committed version of the topic; 0: it was never changed. An error
// is [sandboxmcp.CodeBackendUnavailable] or ctx's.
func (w *Watch) Version(ctx context.Context) (int64, error) {
	if w.path == "" {
		return w.committed.Load(), nil
	}
	announced, err := w.announced()
	if err != nil {
		return 0, w.store.explain("read", err)
	}
	if known := w.committed.Load(); announced == known {
		return known, nil
	}
	var version int64
	err = w.store.DB().QueryRowContext(ctx, selectVersion, w.topic).Scan(&version)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, w.store.explain("read", err)
	}
	for {
		known := w.committed.Load()
		if known >= version {
			return known, nil
		}
		if w.committed.CompareAndSwap(known, version) {
			return version, nil
		}
	}
}

// announced returns the version that is committed, or is about to be.
func (w *Watch) announced() (int64, error) {
	fi, err := os.Stat(w.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case !fi.Mode().IsRegular():
		return 0, &fs.PathError{Op: "read", Path: w.path, Err: plainfile.ErrNotRegular}
	}
	return fi.Size(), nil
}

// Update is [Store.Update] of steps that change the topic. If they fail, its version
// stays.
func (w *Watch) Update(ctx context.Context, ops ...Op) error {
	if w.path == "" {
		err := w.store.Update(ctx, ops...)
		w.committed.Add(1) // even if they fail: a reader in memory sees what is not committed
		w.wake()
		return err
	}
	err := w.store.Update(ctx, append(slices.Clip(ops), w.raise)...)
	if err == nil {
		w.wake()
	}
	return err
}

// wake ends the pause of each Wait of this process.
func (w *Watch) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.moved)
	w.moved = make(chan struct{})
}

// raise is the step that raises the version. It has the database's lock, so only one
// process changes the file. No version is announced twice, even if a transaction fails.
func (w *Watch) raise(ctx context.Context, tx *sql.Tx) error {
	var version int64
	err := tx.QueryRowContext(ctx, selectVersion, w.topic).Scan(&version)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if version, err = w.announce(version); err != nil {
		return w.store.explain("written", err)
	}
	_, err = tx.ExecContext(ctx, setVersion, w.topic, version)
	return err
}

// announce makes the file one byte longer than it is, and longer than version, and
// returns its size.
func (w *Watch) announce(version int64) (next int64, err error) {
	f, err := plainfile.Append(w.path, fileMode)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	next = max(version, fi.Size()) + 1
	if err = f.Truncate(next); err == nil && fi.Size() == 0 {
		err = f.Sync() // without the file nobody would look into the database
	}
	return next, err
}

// Wait returns nil when the version of the topic is another than since. If ctx ends
// first, it returns ctx's error. To miss no change, read the version before the rows,
// and wait for the next one:
//
//	version, err := w.Version(ctx)
//	// read the rows; if they are not what is waited for:
//	err = w.Wait(ctx, version)
func (w *Watch) Wait(ctx context.Context, since int64) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		w.mu.Lock()
		moved := w.moved
		w.mu.Unlock()
		if version, err := w.Version(ctx); err != nil || version != since {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-tick.C:
		}
	}
}

// Cached is what the rows of a topic mean, read once and then again only after a change.
// Make one with [NewCached]. Its methods may be called concurrently.
type Cached[T any] struct {
	watch *Watch
	read  func(ctx context.Context) (T, error)

	load sync.Mutex // held by the one goroutine that reads
	kept atomic.Pointer[versioned[T]]
}

type versioned[T any] struct {
	version int64
	value   T
}

// NewCached returns a cache of what read makes of the rows of a topic. Callers share the
// value, so they may not change it.
func NewCached[T any](w *Watch, read func(ctx context.Context) (T, error)) *Cached[T] {
	return &Cached[T]{watch: w, read: read}
}

// Get returns the value. It holds every change that was committed before the call, by
// any process. Of a topic that was never changed it is T's zero value, and nothing is
// read. The error is read's, or that of [Watch.Version].
func (c *Cached[T]) Get(ctx context.Context) (value T, err error) {
	version, err := c.watch.Version(ctx)
	if err != nil || version == 0 {
		return value, err
	}
	if k := c.kept.Load(); k != nil && k.version >= version {
		return k.value, nil
	}
	c.load.Lock()
	defer c.load.Unlock()
	if k := c.kept.Load(); k != nil && k.version >= version {
		return k.value, nil
	}
	if value, err = c.read(ctx); err == nil {
		c.kept.Store(&versioned[T]{version, value})
	}
	return value, err
}

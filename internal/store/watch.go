package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// watchEvery is how often [Watch.Wait] checks for changes of other processes.
const watchEvery = 100 * time.Millisecond

// watchLost is watchEvery where the database notifies of changes.
const watchLost = time.Second

// Watch notifies all processes that share a database of changes to one topic, such as
// "limits". A topic is a set of rows. Its version is a number that increases with each
// change. Methods may be called concurrently.
//
// [Watch.Update] changes rows and raises the version in one transaction. Once it has
// returned nil, [Watch.Version] returns the new version in every process, and every
// [Watch.Wait] for an older version returns. Changes are coalesced: a process that does not
// check for a while sees only the latest version. A version is visible only after its
// commit, so rows that are read after it are at least as new.
//
// The version is stored as a row of table signals. It is announced by the size in bytes of
// a file beside the database. So a check costs one stat while nothing changes. The file is
// enlarged before the commit, so it is never behind the row. If a process dies between the
// two, the file is ahead of the row, and every check also reads the row until the next
// change or [Store.CatchUp]. A database in memory is not shared, so its version is just a number in memory.
//
// A Watch has no descriptor, goroutine or connection. Wait notices changes of its own
// process at once. It checks for those of others ten times a second.
//
// In a PostgreSQL database there is no file: every check reads the row, and the database
// notifies all servers of a change.
type Watch struct {
	store *Store
	topic string
	path  string // path of the file; empty: the database is in memory, or PostgreSQL

	turn      atomic.Int64 // grows with each change in a PostgreSQL database that this process has made or was notified of
	committed atomic.Int64 // the newest version that was read; for a database in memory the version itself

	mu    sync.Mutex
	moved chan struct{} // closed after the next Update of this process
}

// Watch returns the watch of a topic, the same one for every call. The package that owns
// the topic's rows chooses its name, which consists of lower-case letters.
func (s *Store) Watch(topic string) *Watch {
	s.watchMu.Lock()
	defer s.watchMu.Unlock()
	w := s.watches[topic]
	if w == nil {
		w = &Watch{store: s, topic: topic, moved: make(chan struct{})}
		if s.real != MemoryPath && s.pg == nil {
			w.path = signalFile(s.real, topic)
		}
		if s.watches == nil {
			s.watches = map[string]*Watch{}
		}
		s.watches[topic] = w
	}
	return w
}

// signalFile returns the file whose size announces the version of a topic. It is beside the
// database, like SQLite's own files, so processes that share the database also share it.
func signalFile(database, topic string) string { return database + "-" + topic }

// Beside returns the files and directories beside a database that belong to it: those of SQLite, of notes and of each [Watch]. They need not exist. A program that can
// write them can keep other processes from opening the database, and from noticing changes. The path of the database has no links.
func Beside(database string) []string {
	all := []string{NotesDir(database), database + "-journal", database + "-wal", database + "-shm"}
	for _, topic := range []string{"gate", "limits", "packages", "vault"} {
		all = append(all, signalFile(database, topic))
	}
	return all
}

// Version returns the committed version of the topic, or 0 if it was never changed. An
// error is [sandboxmcp.CodeBackendUnavailable] or that of ctx.
func (w *Watch) Version(ctx context.Context) (int64, error) {
	version, _, err := w.state(ctx)
	return version, err
}

// state returns the committed version, and whether the row has it and the file announces no later one. Otherwise a change is
// about to be committed, a process has ended before it could commit one, or a writer of the database has changed the row. In
// PostgreSQL it returns whether the database notifies this process.
func (w *Watch) state(ctx context.Context) (version int64, settled bool, err error) {
	if w.store.pg != nil {
		hearing := w.store.bell.hearing() // before the row is read
		version, _, err = w.read(ctx)
		return version, hearing, err
	}
	if w.path == "" {
		return w.committed.Load(), true, nil
	}
	announced, err := w.announced()
	if err != nil {
		return 0, false, w.store.explain("read", err)
	}
	if known := w.committed.Load(); announced == known {
		return known, true, nil
	}
	version, row, err := w.read(ctx)
	return version, row == version && row >= announced, err
}

// read returns the version of the row, and that or a newer one that another call has read.
func (w *Watch) read(ctx context.Context) (version, row int64, err error) {
	err = w.store.DB().QueryRowContext(ctx, selectVersion, w.topic).Scan(&row)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, 0, w.store.explain("read", err)
	}
	for {
		known := w.committed.Load()
		if known >= row {
			return known, row, nil
		}
		if w.committed.CompareAndSwap(known, row) {
			return row, row, nil
		}
	}
}

// announced returns the newest version that is committed or about to be committed.
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

// Update is [Store.Update] for steps that change the topic. If a step fails, the version
// stays the same.
func (w *Watch) Update(ctx context.Context, ops ...Op) error {
	if w.path == "" && w.store.pg == nil {
		err := w.store.Update(ctx, ops...)
		w.committed.Add(1) // even on error, because readers of a database in memory see uncommitted rows
		w.wake()
		return err
	}
	err := w.store.Update(ctx, append(slices.Clip(ops), w.raise)...)
	if err == nil {
		w.wake()
	}
	return err
}

// CatchUp raises the version of each topic whose file announces a later one than the row has. A process may have ended before it
// could commit a change, or an older copy of the database was restored. Until then, each use of a [Cached] value reads the rows. A
// server calls it regularly. If a change is about to be committed, the version is raised once more, which does no harm.
func (s *Store) CatchUp(ctx context.Context) error {
	if s.pg != nil { // no file announces
		return nil
	}
	s.watchMu.Lock()
	all := slices.Collect(maps.Values(s.watches))
	s.watchMu.Unlock()
	for _, w := range all {
		_, settled, err := w.state(ctx)
		if err == nil && !settled {
			err = w.Update(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wake ends the pause of every Wait in this process.
func (w *Watch) wake() {
	if w.store.pg != nil {
		w.turn.Add(1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.moved)
	w.moved = make(chan struct{})
}

// wake ends the pause of every Wait for a topic, or for any topic if it is "".
func (s *Store) wake(topic string) {
	s.watchMu.Lock()
	defer s.watchMu.Unlock()
	for name, w := range s.watches {
		if topic == "" || name == topic {
			w.wake()
		}
	}
}

// raise raises the version, as a step of an Update. The transaction holds the database's
// lock, so only one process changes the file. No version is announced twice, even if a
// transaction fails.
func (w *Watch) raise(ctx context.Context, tx *sql.Tx) error {
	if w.store.pg != nil {
		if _, err := tx.ExecContext(ctx, raiseVersion, w.topic); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, notifyAll, w.topic)
		return err
	}
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

// announce makes the file longer than it is and longer than version, by one byte, and
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
		err = f.Sync() // if a power cut lost the file, no process would read the row
	}
	return next, err
}

// Wait returns nil once the version of the topic differs from since. If ctx ends first, it
// returns the error of ctx. To miss no change, read the version before the rows, and then
// wait:
//
//	version, err := w.Version(ctx)
//	// read the rows; if they are not as required:
//	err = w.Wait(ctx, version)
func (w *Watch) Wait(ctx context.Context, since int64) error {
	every := watchEvery
	if w.store.pg != nil { // the database notifies; this is for a notification that was lost
		every = watchLost
	}
	tick := time.NewTicker(every)
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

// Cached is a value that is computed from the rows of a topic, and computed again only
// after a change. Make it with [NewCached]. Its methods may be called concurrently.
//
// A writer of a PostgreSQL database can lower the version of a topic, so that a later change raises it only to a version
// that was read before. So the value is also computed again after each notification. In SQLite a trigger can do that. So the
// value is computed again by each call as long as the file of the topic announces a later version than the row has, or a later one
// was read before. In PostgreSQL it is as long as there is no connection that is notified: such a writer can end it, and keep the
// process from making another one.
type Cached[T any] struct {
	watch *Watch
	read  func(ctx context.Context) (T, error)

	load sync.Mutex // held while the rows are read
	kept atomic.Pointer[versioned[T]]
}

type versioned[T any] struct {
	version, turn int64
	value         T
}

// holds reports whether the value was read at that version and turn, or later.
func (v *versioned[T]) holds(version, turn int64) bool {
	return v != nil && v.version >= version && v.turn >= turn
}

// NewCached returns a cache of the value that read computes from the rows of a topic. All
// callers share the value, so they must not modify it.
func NewCached[T any](w *Watch, read func(ctx context.Context) (T, error)) *Cached[T] {
	return &Cached[T]{watch: w, read: read}
}

// Get returns the value. It includes every change that any process committed before the
// call. If the topic was never changed, Get returns T's zero value without reading. The
// error is that of read or of [Watch.Version].
func (c *Cached[T]) Get(ctx context.Context) (value T, err error) {
	version, settled, err := c.watch.state(ctx)
	turn := c.watch.turn.Load() // afterwards: a process that is notified again has another turn by then
	if err != nil || version == 0 && (settled || c.watch.store.pg != nil) {
		return value, err
	}
	if k := c.kept.Load(); settled && k.holds(version, turn) {
		return k.value, nil
	}
	c.load.Lock()
	defer c.load.Unlock()
	if k := c.kept.Load(); settled && k.holds(version, turn) {
		return k.value, nil
	}
	if value, err = c.read(ctx); err == nil {
		c.kept.Store(&versioned[T]{version, turn, value})
	}
	return value, err
}

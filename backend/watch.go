package backend

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"
)

// A Watch reports changes below a directory of WorkDir, at any depth. The caller closes it.
type Watch interface {
	// Next waits until something has changed since the last call, or since Files.Watch, and returns
	// the changes. If ctx ends first, it fails with ctx's error, and the next call reports the
	// changes. If the directory itself is removed, it fails with fs.ErrNotExist. If the watch or
	// the sandbox is closed, it fails with fs.ErrClosed. It must not be called concurrently.
	//
	// Several changes of an entry may be reported as one. An entry that was made and removed
	// between two calls may not be reported. Untrusted code makes the changes: names can be any
	// bytes.
	Next(ctx context.Context) ([]Change, error)

	// Close ends the watch, and a call of Next that waits. It may be called more than once.
	Close() error
}

// Change is something that happened to an entry.
type Change struct {
	Op   ChangeOp
	Name string // relative to WorkDir; of Lost: the watched directory
}

// ChangeOp says what happened.
type ChangeOp string

// Kinds of changes.
const (
	ChangeCreate ChangeOp = "create" // it is new under this name
	ChangeWrite  ChangeOp = "write"  // a file of this name has another content
	ChangeRemove ChangeOp = "remove" // it is gone
	ChangeRename ChangeOp = "rename" // it has another name now, for which there is a ChangeCreate
	ChangeChmod  ChangeOp = "chmod"  // its mode, or another attribute, is another
	ChangeLost   ChangeOp = "lost"   // there are more entries than a Watch compares, or were: changes may be missing
)

// Bounds of watches. Whatever a program does, a Watch uses no more memory and no more processor
// time than these allow.
const (
	MaxWatches = 4    // watches that one sandbox may have open
	MaxWatched = 4096 // entries of a Watch; while there are more, none of them are compared

	// watchNames is how many bytes the names of these entries may have together, from WorkDir
	// on. A look opens each directory by its whole name: without this bound, directories 2000
	// levels deep make it take a second.
	watchNames = 1 << 20

	watchEvery = 100 * time.Millisecond
	watchRest  = 49 // after each scan, the watch rests this many times as long as the scan took
	watchMost  = 5 * time.Second
)

// NewWatch returns a Watch that lists the directory repeatedly and compares the lists. It uses a
// fiftieth of a core at most, no kernel object, and nothing outside of Next. It scans ten times a
// second, and less often if a scan takes long.
func NewWatch(ctx context.Context, files FileReader, dir string) (Watch, error) {
	w := &lookingWatch{files: files, dir: dir, closed: make(chan struct{})}
	err := w.look(ctx)
	if err != nil {
		return nil, err
	}
	return w, nil
}

type lookingWatch struct {
	files FileReader
	dir   string

	known map[string]FileInfo // nil: there were too many entries
	after time.Time           // time of the next scan

	closing sync.Once
	closed  chan struct{}
}

func (w *lookingWatch) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return nil
}

func (w *lookingWatch) Next(ctx context.Context) ([]Change, error) {
	for {
		if err := w.rest(ctx); err != nil {
			return nil, err
		}
		before := w.known
		if err := w.look(ctx); err != nil {
			return nil, err
		}
		if changes := w.changes(before); len(changes) > 0 {
			return changes, nil
		}
	}
}

// rest waits until the next scan is due.
func (w *lookingWatch) rest(ctx context.Context) error {
	t := time.NewTimer(time.Until(w.after))
	defer t.Stop()
	select {
	case <-w.closed:
		return fs.ErrClosed
	default:
	}
	select {
	case <-t.C:
		return ctx.Err()
	case <-w.closed:
		return fs.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look lists everything. On error the last state is kept.
func (w *lookingWatch) look(ctx context.Context) error {
	began := time.Now()
	defer func() {
		now := time.Now()
		w.after = now.Add(min(max(watchEvery, watchRest*now.Sub(began)), watchMost))
	}()
	found, names := map[string]FileInfo{}, 0
	for dirs := []string{w.dir}; len(dirs) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		list, more, err := w.files.List(ctx, dir, MaxWatched-len(found))
		switch {
		case err != nil && (dir == w.dir || errors.Is(err, fs.ErrClosed) || ctx.Err() != nil):
			return err
		case err != nil: // it was removed meanwhile, or a program removed its permissions: its entries count as removed
			continue
		case more:
			w.known = nil
			return nil
		}
		for _, e := range list {
			name := path.Join(dir, e.Name)
			if names += len(name); names > watchNames {
				w.known = nil
				return nil
			}
			found[name] = e
			if e.Mode.IsDir() {
				dirs = append(dirs, name)
			}
		}
	}
	w.known = found
	return nil
}

// changes compares the current state with the one before.
func (w *lookingWatch) changes(before map[string]FileInfo) []Change {
	if before == nil || w.known == nil {
		if before == nil && w.known == nil {
			return nil
		}
		return []Change{{ChangeLost, path.Clean(w.dir)}}
	}
	var gone, made, other []Change
	moved := map[uint64]FileInfo{} // entries under a new name
	for name, now := range w.known {
		old, there := before[name]
		there = there && old.Mode.Type() == now.Mode.Type()
		switch {
		case !there:
			made = append(made, Change{ChangeCreate, name})
			moved[now.ID] = now
		case old.Mark == now.Mark:
		case !now.Mode.IsDir() && (old.ID != now.ID || old.Size != now.Size || !old.ModTime.Equal(now.ModTime)):
			other = append(other, Change{ChangeWrite, name})
		case old.Mode != now.Mode || old.ModTime.Equal(now.ModTime):
			other = append(other, Change{ChangeChmod, name})
		}
	}
	for name, old := range before {
		if now, there := w.known[name]; there && old.Mode.Type() == now.Mode.Type() {
			continue
		}
		op := ChangeRemove
		if now, ok := moved[old.ID]; ok && old.ID != 0 && old.Mode.Type() == now.Mode.Type() {
			op = ChangeRename
		}
		gone = append(gone, Change{op, name})
	}
	byName := func(a, b Change) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(gone, func(a, b Change) int { return byName(b, a) }) // a directory comes after its entries
	slices.SortFunc(made, byName)
	slices.SortFunc(other, byName)
	return slices.Concat(gone, made, other)
}

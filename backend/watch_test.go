package backend_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// tree is a directory: entries by their names.
type tree struct {
	entries map[string]backend.FileInfo
	lists   int
	slow    time.Duration // that a list takes
}

func (d *tree) Open(context.Context, string) (backend.File, error) { return nil, fs.ErrNotExist }

func (d *tree) List(ctx context.Context, name string, limit int) (list []backend.FileInfo, more bool, err error) {
	d.lists++
	time.Sleep(d.slow)
	if _, there := d.entries[name]; name != "." && !there {
		return nil, false, fs.ErrNotExist
	}
	for _, n := range slices.Sorted(maps.Keys(d.entries)) {
		if path.Dir(n) != name {
			continue
		}
		if len(list) == limit {
			return list, true, ctx.Err()
		}
		e := d.entries[n]
		e.Name = path.Base(n)
		list = append(list, e)
	}
	return list, false, ctx.Err()
}

// entry makes an entry of an ID, a content and a mode. Its time tells the length.
func entry(id uint64, content string, mode fs.FileMode) backend.FileInfo {
	e := backend.FileInfo{ID: id, Size: int64(len(content)), Mode: mode, ModTime: time.Unix(int64(len(content)), 0)}
	e.Mark = strconv.FormatUint(id, 10) + content + mode.String()
	return e
}

func next(t *testing.T, w backend.Watch) string {
	t.Helper()
	list, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range list {
		all = append(all, string(c.Op)+" "+c.Name)
	}
	return strings.Join(all, ", ")
}

// TestWatchCompares tells what happens to entries by their IDs and attributes.
func TestWatchCompares(t *testing.T) {
	dir := fs.ModeDir | 0o755
	for _, c := range []struct {
		name          string
		before, after map[string]backend.FileInfo
		want          string
	}{
		{"renamed", map[string]backend.FileInfo{"a": entry(1, "x", 0o644)}, map[string]backend.FileInfo{"b": entry(1, "x", 0o644)}, "rename a, create b"},
		{"moved directory", map[string]backend.FileInfo{"a": entry(1, "", dir), "a/f": entry(2, "x", 0)}, map[string]backend.FileInfo{"b": entry(1, "", dir), "b/f": entry(2, "x", 0)}, "rename a/f, rename a, create b, create b/f"},
		{"another in its place", map[string]backend.FileInfo{"a": entry(1, "x", 0)}, map[string]backend.FileInfo{"a": entry(2, "x", 0)}, "write a"},
		{"of another kind", map[string]backend.FileInfo{"a": entry(1, "x", 0)}, map[string]backend.FileInfo{"a": entry(2, "", dir)}, "remove a, create a"},
		{"no IDs", map[string]backend.FileInfo{"a": entry(0, "x", 0)}, map[string]backend.FileInfo{"b": entry(0, "x", 0)}, "remove a, create b"},
		{"a link more", map[string]backend.FileInfo{"a": entry(1, "x", 0)}, map[string]backend.FileInfo{"a": entry(1, "x", 0), "b": entry(1, "x", 0)}, "create b"},
		{"written", map[string]backend.FileInfo{"a": entry(1, "x", 0)}, map[string]backend.FileInfo{"a": entry(1, "xy", 0)}, "write a"},
		{"mode", map[string]backend.FileInfo{"a": entry(1, "x", 0o644)}, map[string]backend.FileInfo{"a": entry(1, "x", 0o600)}, "chmod a"},
		{"entries of a directory", map[string]backend.FileInfo{"a": entry(1, "", dir)}, map[string]backend.FileInfo{"a": entry(1, "x", dir), "a/f": entry(2, "", 0)}, "create a/f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &tree{entries: c.before}
				w, err := backend.NewWatch(t.Context(), d, ".")
				if err != nil {
					t.Fatal(err)
				}
				d.entries = c.after
				if diff := cmp.Diff(c.want, next(t, w)); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestWatchComparesNoLongNames: the names of all entries together are bounded, and with
// them the time and the memory of a look at directories that are deep.
func TestWatchComparesNoLongNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deep := map[string]backend.FileInfo{}
		long := strings.Repeat("d", 250)
		for name := long; len(deep) < 150; name += "/" + long {
			deep[name] = entry(uint64(len(deep)), "", fs.ModeDir|0o755)
		}
		d := &tree{entries: map[string]backend.FileInfo{}}
		w, err := backend.NewWatch(t.Context(), d, ".")
		if err != nil {
			t.Fatal(err)
		}
		d.entries, d.lists = deep, 0
		if got := next(t, w); got != "lost ." {
			t.Errorf("got %.100q, want that there is too much", got)
		}
		if most := 100; d.lists > most {
			t.Errorf("got %d directories listed, want at most %d", d.lists, most)
		}
	})
}

// TestWatchRests: a look that takes long is followed by a long rest, so that a watch uses
// a fiftieth of a core.
func TestWatchRests(t *testing.T) {
	for _, slow := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			d := &tree{entries: map[string]backend.FileInfo{}, slow: slow}
			w, err := backend.NewWatch(t.Context(), d, ".")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
			}
			if used, most := time.Duration(d.lists)*slow, time.Minute/50+2*slow; used > most || d.lists < 20 || d.lists > 601 {
				t.Errorf("%d looks of %v in a minute, want at least 20 and at most %v in all", d.lists, slow, most)
			}
		})
	}
}

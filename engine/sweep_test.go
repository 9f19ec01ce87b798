package engine_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// agedBlobs makes what is kept look as if it had been there for an hour, and
// returns how many bytes it has.
func agedBlobs(t *testing.T, dir string) (size int64) {
	t.Helper()
	past := time.Now().Add(-time.Hour)
	err := filepath.WalkDir(filepath.Join(dir, "blobs"), func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		size += fi.Size()
		return os.Chtimes(p, past, past)
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// sweepNow lets an engine end that finds a sweep due.
func sweepNow(t *testing.T, dir string, change func(*engine.Config)) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "swept")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := open(t, &fake{}, at(dir), change).Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSweepAfterTheClockWasSetBack: a sweep at a time to come does not keep commands from
// sweeping until then.
func TestSweepAfterTheClockWasSetBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, &fake{}, at(dir))
	execute(t, e, shell("a"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(dir, "swept")
	ahead := time.Now().Add(1000 * time.Hour)
	if err := os.Chtimes(mark, ahead, ahead); err != nil {
		t.Fatal(err)
	}
	if err := open(t, &fake{}, at(dir)).Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(mark); err != nil || !st.ModTime().Before(ahead) {
		t.Errorf("got no sweep, %v, want one", err)
	}
}

// TestSpaceIsGivenBackWithTheNextResult: once a run is answered, what is kept of its namespace
// is within its bound, also on disk. The newest result is kept in any case.
func TestSpaceIsGivenBackWithTheNextResult(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	small := func(c *engine.Config) { c.KeepBytes = 1 << 20 }
	f := &fake{}
	e := open(t, f, at(dir), small)
	for _, c := range []string{"a", "b", "c", "d"} {
		f.files = map[string]string{"big": strings.Repeat(c, 3<<20)}
		execute(t, e, shell(c))
		if size := agedBlobs(t, dir); size != 3<<20 {
			t.Errorf("after %s: got %d bytes on disk, want those of the newest result", c, size)
		}
	}
	if n := count(t, database(t, dir), `SELECT count(*) FROM audit WHERE action = 'artifact_dropped'`); n != 3 {
		t.Errorf("got %d entries of drops, want 3", n)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, database(t, dir), `SELECT count(*) FROM artifacts`); n != 0 {
		t.Errorf("%d files are named, want none within 1 MiB", n)
	}
	if size := agedBlobs(t, dir); size != 0 {
		t.Errorf("%d bytes are kept, want none", size)
	}
}

// TestNothingIsDroppedUnrecorded: while the audit record takes no entry, results and files
// stay.
func TestNothingIsDroppedUnrecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	later := func(c *engine.Config) { c.Now = func() time.Time { return time.Now().Add(48 * time.Hour) } }
	e := open(t, &fake{files: map[string]string{"secret-name.txt": "A"}}, at(dir))
	res := execute(t, e, shell("x"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	agedBlobs(t, dir)
	db := database(t, dir)
	do(t, db, `CREATE TRIGGER deaf BEFORE INSERT ON audit WHEN NEW.action = 'artifact_dropped' BEGIN SELECT RAISE(ABORT, 'deaf'); END`)
	sweepNow(t, dir, later)
	e = open(t, &fake{}, at(dir))
	if got := lookup(t, e, sandboxmcp.Lookup{RequestID: res.RequestID, Content: true}); len(got.Artifacts) != 1 || string(got.Artifacts[0].ContentB64) != "A" {
		t.Errorf("what could not be recorded as dropped is kept as %+v", got.Artifacts)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	do(t, db, `DROP TRIGGER deaf`)
	sweepNow(t, dir, later)
	list := rows(t, dir, "default")
	last := list[len(list)-1]
	if last.Action != "artifact_dropped" || last.RequestID != res.RequestID || last.Detail != "1 files" {
		t.Errorf("the last entry is %+v, want the drop", last)
	}
	if n, _ := last.Metadata["bytes"].(float64); n < 1000 { // with the result and the receipt
		t.Errorf("got %v bytes, want those of the result and its receipt as well", n)
	}
	delete(last.Metadata, "bytes")
	want := map[string]any{"files": 1.0, "reason": "too old"}
	if diff := cmp.Diff(want, last.Metadata); diff != "" {
		t.Error(diff)
	}
	if n := count(t, db, `SELECT count(*) FROM audit WHERE detail LIKE '%secret%' OR metadata LIKE '%secret%'`); n != 0 {
		t.Errorf("audit entries with the file's name: got %d, want none", n)
	}
}

// TestOneProcessSweepsAtATime: a sweep waits for that of another process, and gives up once
// its own time is over.
func TestOneProcessSweepsAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lease, err := s.Lease(t.Context(), "sweep.lock")
	if err != nil {
		t.Fatal(err)
	}
	sweepNow(t, dir, func(*engine.Config) {})
	if _, err := os.Stat(filepath.Join(dir, "swept")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("beside the sweep of another process: got %v, want no sweep", err)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	sweepNow(t, dir, func(*engine.Config) {})
	if _, err := os.Stat(filepath.Join(dir, "swept")); err != nil {
		t.Errorf("the mark of a sweep: got %v, want it there", err)
	}
}

// TestMemoryLeavesNothing: an engine with its record in memory removes its own files when it
// closes. Files of the record on disk stay, and that one is not marked as swept.
func TestMemoryLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, &fake{files: map[string]string{"a": "on disk"}}, at(dir))
	kept := execute(t, e, shell("x"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	size := agedBlobs(t, dir)
	if err := os.Remove(filepath.Join(dir, "swept")); err != nil {
		t.Fatal(err)
	}
	e = open(t, &fake{files: map[string]string{"a": "in memory"}}, at(dir), func(c *engine.Config) { c.SQLitePath = ":memory:" })
	res := execute(t, e, shell("x"))
	if got := lookup(t, e, sandboxmcp.Lookup{RequestID: res.RequestID, Content: true}); len(got.Artifacts) != 1 || string(got.Artifacts[0].ContentB64) != "in memory" {
		t.Errorf("the engine in memory has %+v", got.Artifacts)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "blobs-*")); len(left) != 0 || agedBlobs(t, dir) != size {
		t.Errorf("got %v beside the blobs, and of %d bytes on disk %d; want nothing and all", left, size, agedBlobs(t, dir))
	}
	if _, err := os.Stat(filepath.Join(dir, "swept")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark of a sweep: got %v, want none", err)
	}
	e = open(t, &fake{}, at(dir))
	if got := lookup(t, e, sandboxmcp.Lookup{RequestID: kept.RequestID, Content: true}); len(got.Artifacts) != 1 || string(got.Artifacts[0].ContentB64) != "on disk" {
		t.Errorf("on disk is %+v", got.Artifacts)
	}
}

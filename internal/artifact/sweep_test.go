package artifact_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// notes collects what a sweep has to write down.
type notes struct {
	list []artifact.Dropped
	err  error // what writing it down fails with
}

func (n *notes) note(d artifact.Dropped) store.Op {
	return func(context.Context, *sql.Tx) error {
		if n.err != nil {
			return n.err
		}
		n.list = append(n.list, d)
		return nil
	}
}

// sweep sweeps and returns what was dropped.
func (k *kit) sweep(t *testing.T) []artifact.Dropped {
	t.Helper()
	var n notes
	if err := k.Sweep(t.Context(), n.note); err != nil {
		t.Fatal(err)
	}
	return n.list
}

// ageBlobs makes all blobs look as if they had been there for an hour.
func (k *kit) ageBlobs(t *testing.T) {
	t.Helper()
	at := time.Now().Add(-time.Hour)
	for _, b := range k.blobFiles(t) {
		if err := os.Chtimes(b, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSweep(t *testing.T) {
	k := newKit(t, artifact.Config{MaxAge: time.Hour, MaxBytes: 1 << 20})
	k.save(t, result("old", "o1"), map[string]string{"gone": "old content", "shared": "same"})
	k.now = k.now.Add(2 * time.Hour)
	for i, id := range []sandboxmcp.RequestID{"b1", "b2", "b3"} {
		r := result("big", id)
		r.Stdout = strings.Repeat("x", 100<<10)
		k.save(t, r, map[string]string{"f": strings.Repeat(string(rune('a'+i)), 300<<10), "shared": "same"})
		k.now = k.now.Add(time.Minute)
	}
	big := result("huge", "h1")
	big.Stdout = strings.Repeat("h", 2<<20) // larger than all that may be kept, and the newest
	k.save(t, big, nil)
	k.ageBlobs(t)
	unsized := cmpopts.IgnoreFields(artifact.Dropped{}, "Bytes")
	if d := cmp.Diff([]artifact.Dropped{{Namespace: "big", RequestID: "b1", Files: 2, Reason: "too much"}}, k.dropped.list, unsized); d != "" {
		t.Error(d)
	}
	want := []artifact.Dropped{
		{Namespace: "huge", RequestID: "h1", Reason: "too much"},
		{Namespace: "old", RequestID: "o1", Files: 2, Reason: "too old"},
	}
	byID := cmpopts.SortSlices(func(a, b artifact.Dropped) bool { return a.RequestID < b.RequestID })
	if d := cmp.Diff(want, k.sweep(t), byID, unsized); d != "" {
		t.Error(d)
	}
	if n := len(k.blobFiles(t)); n != 4 {
		t.Errorf("%d blobs are left, want the 4 of b2 and b3", n)
	}
	if r, err := k.Load(t.Context(), "big", "b3", true); err != nil || len(r.Artifacts) != 2 {
		t.Errorf("a record that is kept: got artifacts %v, error %v; want 2", r.Artifacts, err)
	}
	if _, err := k.Load(t.Context(), "old", "o1", false); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("a record that was dropped: got %v, want request_not_found", err)
	}
	if again := k.sweep(t); len(again) != 0 {
		t.Errorf("a second sweep: got %v, want nothing dropped", again)
	}
}

// What cannot be written down is kept, whole.
func TestSweepDropsNothingUnnoted(t *testing.T) {
	k := newKit(t, artifact.Config{MaxAge: time.Hour})
	want := k.save(t, result("ns", "r1"), map[string]string{"a": "A"})
	k.save(t, result("ns", "r2"), nil)
	k.ageBlobs(t)
	k.now = k.now.Add(2 * time.Hour)
	n := notes{err: errors.New("no audit")}
	if err := k.Sweep(t.Context(), n.note); !errors.Is(err, n.err) {
		t.Errorf("got %v, want %v", err, n.err)
	}
	got, err := k.Load(t.Context(), "ns", "r1", true)
	if d := cmp.Diff(want.Artifacts, got.Artifacts); err != nil || d != "" {
		t.Error(err, d)
	}
	if got := k.sweep(t); len(got) != 2 {
		t.Errorf("later were dropped %v, want both", got)
	}
}

// What another process drops first is not noted a second time.
func TestSweepNotesOnce(t *testing.T) {
	k := newKit(t, artifact.Config{MaxAge: time.Hour})
	k.save(t, result("ns", "r1"), map[string]string{"a": "A"})
	k.now = k.now.Add(2 * time.Hour)
	other, err := store.Open(t.Context(), storetest.On(store.Config{Dir: k.store.Dir()})) // as another process has it
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var first []artifact.Dropped
	slow := artifact.NewKeeper(other, artifact.Config{MaxAge: time.Hour, Now: func() time.Time {
		first = k.sweep(t) // while the list of what is due is being read
		return k.now
	}})
	var second notes
	if err := slow.Sweep(t.Context(), second.note); err != nil {
		t.Fatal(err)
	}
	if len(first) != 1 || len(second.list) != 0 {
		t.Errorf("got %v dropped by one sweep and %v by the other, want one and none", first, second.list)
	}
}

// A blob is removed with the last record that names it. A blob that a killed process has left
// is removed when it is old.
func TestOrphansGoWhenTheyAreOld(t *testing.T) {
	k := newKit(t, artifact.Config{MaxAge: time.Hour})
	k.save(t, result("ns", "old"), map[string]string{"a": "A"})
	k.now = k.now.Add(2 * time.Hour)
	r := result("ns", "kept")
	r.Stdout, r.Stderr = strings.Repeat("o", 70<<10), strings.Repeat("e", 70<<10)
	k.save(t, r, map[string]string{"b": "B"})
	if _, err := k.store.PutBlob(t.Context(), []byte("of a run that was killed")); err != nil {
		t.Fatal(err)
	}
	if got := k.sweep(t); len(got) != 1 {
		t.Errorf("dropped %v", got)
	}
	if n := len(k.blobFiles(t)); n != 4 {
		t.Errorf("got %d blobs left, want the 3 that are named and a young one", n)
	}
	k.ageBlobs(t)
	k.sweep(t)
	if n := len(k.blobFiles(t)); n != 3 {
		t.Errorf("%d blobs are left, want the 3 that are named", n)
	}
	got, err := k.Load(t.Context(), "ns", "kept", true)
	if err != nil || got.Stdout != r.Stdout || got.Stderr != r.Stderr || string(got.Artifacts[0].ContentB64) != "B" {
		t.Errorf("a record that is kept: got it changed (%v), want it as it was", err)
	}
	if left, _ := os.ReadDir(filepath.Join(k.store.Dir(), "blobs", "tmp")); len(left) != 0 {
		t.Errorf("%v is left, want the space back", left)
	}
}

// Each sweep looks at a part, the next at the part that follows: after enough
// of them everything was looked at.
func TestOrphansAreLookedAtInParts(t *testing.T) {
	k := newKit(t, artifact.Config{Look: 30})
	named, orphans := map[string]string{}, 0
	for i := range 100 {
		named["f"+strconv.Itoa(i)] = strconv.Itoa(i)
		if _, err := k.store.PutBlob(t.Context(), []byte("orphan "+strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		orphans++
	}
	k.save(t, result("ns", "r1"), named)
	k.ageBlobs(t)
	var left []int
	for range 4 {
		k.sweep(t)
		left = append(left, len(k.blobFiles(t))-len(named))
	}
	if left[0] == 0 || left[0] == orphans || left[3] != 0 {
		t.Errorf("of %d orphans are left %v, want some after the first sweep and none after the last", orphans, left)
	}
	if !slices.IsSortedFunc(left, func(a, b int) int { return b - a }) {
		t.Errorf("orphans left: got %v, want fewer after each sweep", left)
	}
}

// A run that leaves the same content while a sweep removes it keeps it.
func TestSweepBesideARun(t *testing.T) {
	k := newKit(t, artifact.Config{MaxAge: time.Hour})
	var ids []sandboxmcp.RequestID
	for i := range 20 {
		if _, err := k.store.PutBlob(t.Context(), []byte("same")); err != nil {
			t.Fatal(err)
		}
		k.ageBlobs(t)
		swept := make(chan error, 1)
		go func() { swept <- k.Sweep(t.Context(), new(notes).note) }()
		ids = append(ids, sandboxmcp.RequestID("r"+strconv.Itoa(i)))
		k.save(t, result("ns", ids[i]), map[string]string{"a": "same"})
		if err := <-swept; err != nil {
			t.Fatal(err)
		}
		if a, err := k.Content(t.Context(), "ns", ids[i], "a"); err != nil || string(a.ContentB64) != "same" {
			t.Fatalf("round %d: got %q, %v; want same", i, a.ContentB64, err)
		}
		if i%2 == 0 {
			continue // the next round's blob is named
		}
		k.now = k.now.Add(2 * time.Hour)
		if got := k.sweep(t); len(got) == 0 || slices.ContainsFunc(got, func(d artifact.Dropped) bool { return d.Files != 1 }) {
			t.Fatalf("round %d: dropped %v", i, got)
		}
	}
}

// kept is how many bytes the state directory has on disk of results: rows and blobs.
func (k *kit) kept(t *testing.T) (size int64) {
	t.Helper()
	const q = `SELECT coalesce(sum(length(result) + length(stdout) + length(stderr) + coalesce(length(receipt), 0)), 0) FROM executions`
	if err := k.store.DB().QueryRowContext(t.Context(), q).Scan(&size); err != nil {
		t.Fatal(err)
	}
	for _, b := range k.blobFiles(t) {
		fi, err := os.Stat(b)
		if err != nil {
			t.Fatal(err)
		}
		size += fi.Size()
	}
	return size
}

// The bound holds after each result, without a sweep, whatever the bytes are in: but
// for the newest result, which stays.
func TestTheBoundHoldsBetweenSweeps(t *testing.T) {
	text := func(i int) string { return strings.Repeat(strconv.Itoa(i), 30<<10/len(strconv.Itoa(i))) }
	for what, fill := range map[string]func(r *sandboxmcp.Result, i int) map[string]string{
		"output":      func(r *sandboxmcp.Result, i int) map[string]string { r.Stdout = text(i); return nil },
		"long output": func(r *sandboxmcp.Result, i int) map[string]string { r.Stderr = strings.Repeat(text(i), 3); return nil },
		"files":       func(_ *sandboxmcp.Result, i int) map[string]string { return map[string]string{"f": text(i)} },
		"rich results": func(r *sandboxmcp.Result, i int) map[string]string {
			r.Results = []sandboxmcp.RichResult{{"text/html": text(i)}}
			return nil
		},
		"receipts": func(r *sandboxmcp.Result, i int) map[string]string {
			r.Receipt = &sandboxmcp.Receipt{PayloadType: "t", Payload: text(i)}
			return nil
		},
		"names of files": func(r *sandboxmcp.Result, i int) map[string]string {
			long := map[string]string{}
			for n := range 100 {
				long[strings.Repeat("n", 240)+strconv.Itoa(n)] = ""
			}
			return long
		},
	} {
		const bound = 256 << 10
		k := newKit(t, artifact.Config{MaxBytes: bound})
		for i := range 40 {
			k.save(t, fillResult(what, i, fill), fill(new(sandboxmcp.Result), i))
			k.now = k.now.Add(time.Second)
			if got := k.kept(t); got > bound {
				t.Errorf("%s: got %d bytes kept after %d results, want at most %d", what, got, i+1, bound)
				break
			}
		}
		var rows, sum, told int64
		const q = `SELECT count(*), sum(bytes), (SELECT bytes FROM kept_bytes) FROM executions`
		if err := k.store.DB().QueryRowContext(t.Context(), q).Scan(&rows, &sum, &told); err != nil {
			t.Fatal(err)
		}
		if rows < 2 || rows == 40 || sum != told || sum > bound {
			t.Errorf("%s: got %d results of %d bytes, counted as %d; want some, at most %d bytes, counted right", what, rows, sum, told, bound)
		}
		if got := len(k.dropped.list); int64(got) != 40-rows {
			t.Errorf("%s: got %d drops noted, want %d", what, got, 40-rows)
		}
		if again := k.sweep(t); len(again) != 0 {
			t.Errorf("%s: got %v dropped by a sweep, want none", what, again)
		}
	}
}

func fillResult(what string, i int, fill func(*sandboxmcp.Result, int) map[string]string) sandboxmcp.Result {
	r := result("ns", sandboxmcp.RequestID(strings.ReplaceAll(what, " ", "-")+strconv.Itoa(i)))
	fill(&r, i)
	return r
}

// A result whose content was discarded after it was collected is kept whole: what
// it names is put back before its row is there.
func TestContentThatIsDiscardedBeforeItsRowIsPutBack(t *testing.T) {
	k, root := newKit(t, artifact.Config{}), t.TempDir()
	fill(t, root, map[string]string{"a": "content"})
	r := result("ns", "r1")
	r.Stdout = strings.Repeat("o", 70<<10)
	r.Artifacts = k.collect(t, artifact.Source{Files: &dir{root: root}, RequestID: "r1"}).Artifacts
	save, err := k.Save(t.Context(), artifact.Record{Result: r, CreatedAt: k.now, EndedAt: k.now}, k.dropped.note)
	if err != nil {
		t.Fatal(err)
	}
	k.ageBlobs(t)
	k.sweep(t)
	if n := len(k.blobFiles(t)); n != 0 {
		t.Fatalf("got %d blobs left, want none", n)
	}
	if err := k.store.Update(t.Context(), save.Op); err != nil {
		t.Fatal(err)
	}
	got, err := k.Load(t.Context(), "ns", "r1", true)
	if err != nil || got.Stdout != r.Stdout || string(got.Artifacts[0].ContentB64) != "content" {
		t.Errorf("got %d bytes of output, %+v and %v; want all of it", len(got.Stdout), got.Artifacts, err)
	}
}

// Drops whose transaction fails leave the content of what is still kept.
func TestDropsThatAreUndoneLeaveTheContent(t *testing.T) {
	k := newKit(t, artifact.Config{MaxBytes: 10 << 10})
	k.save(t, result("ns", "r1"), map[string]string{"a": strings.Repeat("a", 8<<10)})
	k.now = k.now.Add(time.Second)
	r := result("ns", "r2")
	r.Stdout = strings.Repeat("o", 8<<10)
	save, err := k.Save(t.Context(), artifact.Record{Result: r, CreatedAt: k.now, EndedAt: k.now}, k.dropped.note)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := k.store.Update(t.Context(), save.Op, func(context.Context, *sql.Tx) error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	if err := k.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Load(t.Context(), "ns", "r1", true); err != nil || len(got.Artifacts) != 1 {
		t.Errorf("got %+v and %v, want the result whole", got.Artifacts, err)
	}
}

// Results of a release that did not count them are counted by the next sweep.
func TestResultsThatWereNotCountedAreCountedByASweep(t *testing.T) {
	k := newKit(t, artifact.Config{})
	r := result("ns", "r1")
	r.Stdout = strings.Repeat("o", 70<<10)
	k.save(t, r, map[string]string{"a": strings.Repeat("a", 5000)})
	var want, got int64
	read := func(into *int64) {
		t.Helper()
		if err := k.store.DB().QueryRowContext(t.Context(), `SELECT bytes FROM kept_bytes`).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	read(&want)
	err := k.store.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE executions SET bytes = NULL`)
		return err
	})
	if read(&got); err != nil || got != 0 {
		t.Fatalf("got %d and %v, want 0", got, err)
	}
	k.sweep(t)
	if read(&got); got < want-1000 || got > want+1000 {
		t.Errorf("got %d bytes, want about %d", got, want)
	}
}

// TestProcessesTogetherKeepWithinTheBound: each looks at the database now and then, and
// still they never keep more than MaxBytes.
func TestProcessesTogetherKeepWithinTheBound(t *testing.T) {
	const most = 1 << 20
	k := newKit(t, artifact.Config{MaxBytes: most})
	keepers := []*artifact.Keeper{k.Keeper}
	for range 3 {
		keepers = append(keepers, artifact.NewKeeper(k.store, artifact.Config{MaxBytes: most}))
	}
	largest := int64(0)
	for n := range 200 {
		r := result("default", sandboxmcp.RequestID(fmt.Sprintf("r%d", n)))
		r.Stdout = strings.Repeat("x", 12_000+n)
		save, err := keepers[n/3%len(keepers)].Save(t.Context(), artifact.Record{Result: r, CreatedAt: k.now, EndedAt: k.now}, k.dropped.note)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.store.Update(t.Context(), save.Op); err != nil {
			t.Fatal(err)
		}
		var kept int64
		if err := k.store.DB().QueryRowContext(t.Context(), `SELECT bytes FROM kept_bytes WHERE namespace = 'default'`).Scan(&kept); err != nil {
			t.Fatal(err)
		}
		if largest = max(largest, kept); kept > most {
			t.Fatalf("%d bytes are kept after %d results, want at most %d", kept, n+1, most)
		}
	}
	if largest < most*9/10 {
		t.Errorf("got at most %d bytes kept, want the limit nearly reached, or the test shows nothing", largest)
	}
}

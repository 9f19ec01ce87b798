package artifact_test

import (
	"context"
	"database/sql"
	"errors"
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
	k := newKit(t, artifact.Config{MaxAge: time.Hour, MaxBytes: 1000})
	k.save(t, result("old", "o1"), map[string]string{"gone": "old content", "shared": "same"})
	k.now = k.now.Add(2 * time.Hour)
	for i, id := range []sandboxmcp.RequestID{"b1", "b2", "b3"} {
		r := result("big", id)
		r.Stdout = strings.Repeat("x", 100)
		k.save(t, r, map[string]string{"f": strings.Repeat(string(rune('a'+i)), 400), "shared": "same"})
		k.now = k.now.Add(time.Minute)
	}
	big := result("huge", "h1")
	big.Stdout = strings.Repeat("h", 70<<10) // a blob, larger than all that may be kept
	k.save(t, big, nil)
	k.ageBlobs(t)
	// b3 has 504 bytes and b2 504 more: the oldest that is beyond 1 000 goes, with all before it.
	want := []artifact.Dropped{
		{Namespace: "big", RequestID: "b1", Files: 2, Bytes: 504, Reason: "too much"},
		{Namespace: "big", RequestID: "b2", Files: 2, Bytes: 504, Reason: "too much"},
		{Namespace: "huge", RequestID: "h1", Bytes: 70 << 10, Reason: "too much"},
		{Namespace: "old", RequestID: "o1", Files: 2, Bytes: 15, Reason: "too old"},
	}
	byID := cmpopts.SortSlices(func(a, b artifact.Dropped) bool { return a.RequestID < b.RequestID })
	if d := cmp.Diff(want, k.sweep(t), byID); d != "" {
		t.Error(d)
	}
	if n := len(k.blobFiles(t)); n != 2 {
		t.Errorf("%d blobs are left, want the 2 of b3", n)
	}
	if r, err := k.Load(t.Context(), "big", "b3", true); err != nil || len(r.Artifacts) != 2 {
		t.Errorf("what was kept: %v, %v", r.Artifacts, err)
	}
	if _, err := k.Load(t.Context(), "old", "o1", false); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("what was dropped: %v", err)
	}
	if again := k.sweep(t); len(again) != 0 {
		t.Errorf("a second sweep: %v", again)
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
	other, err := store.Open(t.Context(), store.Config{Dir: k.store.Dir()}) // as another process has it
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
		t.Errorf("dropped by one %v, by the other %v", first, second.list)
	}
}

// A blob that is spared because it is young goes later, though the row that
// named it went long before; and so does what a killed process has left.
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
	if n := len(k.blobFiles(t)); n != 5 {
		t.Errorf("%d blobs are left, want all 5 as they are young", n)
	}
	k.ageBlobs(t)
	k.sweep(t)
	if n := len(k.blobFiles(t)); n != 3 {
		t.Errorf("%d blobs are left, want the 3 that are named", n)
	}
	got, err := k.Load(t.Context(), "ns", "kept", true)
	if err != nil || got.Stdout != r.Stdout || got.Stderr != r.Stderr || string(got.Artifacts[0].ContentB64) != "B" {
		t.Errorf("what is kept was touched: %v", err)
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
		t.Errorf("orphans that are left: %v", left)
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
			t.Fatalf("round %d: %q, %v", i, a.ContentB64, err)
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

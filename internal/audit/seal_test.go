package audit_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// keeper signs as a key would, with a word that only it knows.
type keeper struct{ word string }

func (k keeper) seal(text string) string {
	sum := sha256.Sum256([]byte(k.word + text))
	return text + "\n— keeper " + hex.EncodeToString(sum[:]) + "\n"
}

func (k keeper) Note(text string) (string, error) { return k.seal(text), nil }

func (k keeper) OpenNote(signed string) (string, error) {
	text, _, ok := strings.Cut(signed, "\n\n")
	if text += "\n"; !ok || k.seal(text) != signed {
		return "", errors.New("its signature does not fit")
	}
	return text, nil
}

func (k keeper) Derive(purpose string) ([]byte, error) {
	sum := sha256.Sum256([]byte(k.word + purpose))
	return sum[:], nil
}

var ours = keeper{"ours"}

// sealed is a record that is signed, in a directory that may have one already.
type sealed struct {
	dir string
	cfg audit.Config
	s   *store.Store
	l   *audit.Log
}

func openSealed(tb testing.TB, dir string, change ...func(*audit.Config)) *sealed {
	tb.Helper()
	s, err := store.Open(tb.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		tb.Fatal(err)
	}
	r := &sealed{dir: dir, s: s, cfg: audit.Config{Signer: ours, HeadFile: audit.HeadFile(dir, s.Path()), CheckpointFile: filepath.Join(dir, "second")}}
	for _, c := range change {
		c(&r.cfg)
	}
	if r.l, err = audit.Open(tb.Context(), s, r.cfg); err != nil {
		tb.Fatal(errors.Join(err, s.Close()))
	}
	return r
}

func (r *sealed) close(tb testing.TB) {
	tb.Helper()
	r.l.Close(context.WithoutCancel(tb.Context()))
	if err := r.s.Close(); err != nil {
		tb.Error(err)
	}
	r.l.Publish()
}

func (r *sealed) append(tb testing.TB, ns sandboxmcp.Namespace, n int) {
	tb.Helper()
	for i := range n {
		if _, err := r.l.Append(tb.Context(), entry(ns, i)); err != nil {
			tb.Fatal(err)
		}
	}
}

// filled makes a directory with a record of 30 entries of two namespaces, under
// several checkpoints.
func filled(tb testing.TB, dir string) {
	tb.Helper()
	for range 3 {
		r := openSealed(tb, dir)
		r.append(tb, "a", 6)
		r.append(tb, "b", 4)
		r.close(tb)
	}
}

// check verifies the record of a directory.
func check(tb testing.TB, dir string, change ...func(*audit.Evidence)) sandboxmcp.AuditReport {
	tb.Helper()
	path := store.Path(storetest.On(store.Config{Dir: dir}))
	with := audit.Evidence{Open: ours.OpenNote, HeadFile: audit.HeadFile(dir, path)}
	for _, c := range change {
		c(&with)
	}
	v, err := store.Look(tb.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		tb.Fatal(err)
	}
	var db *sql.DB
	if v != nil {
		defer func() {
			if err := v.Close(); err != nil {
				tb.Error(err)
			}
		}()
		db = v.DB()
	}
	rep, err := audit.Verify(tb.Context(), db, with)
	if err != nil {
		tb.Fatal(err)
	}
	return rep
}

func second(dir string) func(*audit.Evidence) {
	return func(e *audit.Evidence) { e.CheckpointFile = filepath.Join(dir, "second") }
}

func alone(e *audit.Evidence) { e.HeadFile = "" }

// alter changes a database without the store.
func alter(tb testing.TB, dir, statement string) {
	tb.Helper()
	storetest.Tamper(tb, dir, statement)
}

func TestCheckpoints(t *testing.T) {
	dir := t.TempDir()
	if rep := check(t, dir); !rep.OK || rep.Entries != 0 || rep.Head.Size != 0 || rep.Head.SignedAt != nil {
		t.Errorf("of nothing: got %+v", rep)
	}
	filled(t, dir)
	rep := check(t, dir, second(dir))
	if !rep.OK || rep.Entries != 30 || rep.Checkpoints != 3 || rep.Tail.Entries != 0 || rep.Head.Size != 30 || rep.Head.SignedAt == nil {
		t.Errorf("got %+v", rep)
	}
	if len(rep.Namespaces) != 2 || rep.Namespaces[0].Entries != 18 || rep.Namespaces[1].Seq != 12 {
		t.Errorf("namespaces: got %+v", rep.Namespaces)
	}
	if rep.Second == nil || rep.Second.Notes != 3 || rep.Second.Size != 30 {
		t.Errorf("second place: got %+v", rep.Second)
	}
	r := openSealed(t, dir)
	defer r.close(t)
	page, err := r.l.List(t.Context(), "a", sandboxmcp.AuditQuery{Limit: 1})
	if err != nil || page.Head.Root != rep.Head.Root || page.Head.Size != 30 || !page.Head.SignedAt.Equal(*rep.Head.SignedAt) {
		t.Errorf("head: got %+v and %v, want %+v", page.Head, err, rep.Head)
	}
	r.append(t, "a", 3)
	if rep := check(t, dir); !rep.OK || rep.Tail.Entries != 3 || rep.Tail.Since == nil {
		t.Errorf("with a tail: got %+v", rep)
	}
}

// A server that appends nothing signs nothing, and one whose entries another has
// signed neither.
func TestIdleServersSignNothing(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	for range 3 {
		openSealed(t, dir).close(t)
	}
	if rep := check(t, dir, second(dir)); rep.Checkpoints != 3 || rep.Second.Notes != 3 {
		t.Errorf("got %d checkpoints and %d notes, want 3 of each", rep.Checkpoints, rep.Second.Notes)
	}
	x, y := openSealed(t, dir), openSealed(t, dir)
	x.append(t, "a", 1)
	y.append(t, "a", 1)
	x.close(t)
	y.close(t)
	if rep := check(t, dir, second(dir)); !rep.OK || rep.Checkpoints != 4 || rep.Second.Notes != 4 || rep.Head.Size != 32 {
		t.Errorf("got %+v", rep)
	}
}

// However many append at once, no commit leaves more than 100 entries unsigned.
func TestTailIsBounded(t *testing.T) {
	dir := t.TempDir()
	r := openSealed(t, dir)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 60 {
				a, b := entry("a", i), entry("b", i)
				if err := r.s.Update(context.WithoutCancel(t.Context()), r.l.Op(&a), r.l.Op(&b)); err != nil {
					t.Error(err)
					return
				}
				var tail int64
				const q = `SELECT (SELECT max(position) FROM audit) - coalesce((SELECT max(size) FROM audit_checkpoints), 0)`
				if err := r.s.DB().QueryRowContext(t.Context(), q).Scan(&tail); err != nil || tail > 100 {
					t.Errorf("unsigned tail: got %d entries (%v), want at most 100", tail, err)
				}
			}
		})
	}
	wg.Wait()
	r.close(t)
	if rep := check(t, dir, second(dir)); !rep.OK || rep.Entries != 960 || rep.Head.Size != 960 || rep.Checkpoints < 9 {
		t.Errorf("got %+v", rep)
	}
}

// A single entry is signed without a further call.
func TestTailIsSignedInTime(t *testing.T) {
	dir := t.TempDir()
	r := openSealed(t, dir)
	defer r.close(t)
	r.append(t, "a", 1)
	testkit.Until(t, "both checkpoint files cover the entry", func() bool {
		rep := check(t, dir, second(dir))
		return rep.Head.Size == 1 && rep.Second.Size == 1
	})
}

// rechain computes the hash of every entry anew, as anyone can who knows its form.
func rechain(tb testing.TB, dir string) {
	tb.Helper()
	s := open(tb, dir)
	err := s.Update(tb.Context(), audit.Rechain)
	if err = errors.Join(err, s.Close()); err != nil {
		tb.Fatal(err)
	}
}

func TestTampering(t *testing.T) {
	const forge = `UPDATE audit SET action = 'exekute' WHERE namespace = 'a' AND seq = 8`
	tests := []struct {
		name    string
		do      func(t *testing.T, dir string)
		kind    string
		row     int64
		reason  string
		without bool // the database and the key alone show it, too
	}{
		{"edit", func(t *testing.T, dir string) { alter(t, dir, forge) }, "edited", 12, "does not have the hash", true},
		{"delete in the middle", func(t *testing.T, dir string) { alter(t, dir, `DELETE FROM audit WHERE position = 12`) }, "deleted", 13, "is missing", true},
		{"delete the last of a namespace, with others behind", func(t *testing.T, dir string) {
			alter(t, dir, `DELETE FROM audit WHERE position >= 20 AND namespace = 'b'`)
		}, "deleted", 21, "row 20 is missing", true},
		{"delete the first", func(t *testing.T, dir string) { alter(t, dir, `DELETE FROM audit WHERE position = 1`) }, "deleted", 2, "row 1 is missing", true},
		{"delete and renumber", func(t *testing.T, dir string) {
			alter(t, dir, `DELETE FROM audit WHERE position = 12; UPDATE audit SET position = position - 1 WHERE position > 12; UPDATE audit SET seq = seq - 1 WHERE namespace = 'a' AND position >= 12`)
			rechain(t, dir)
		}, "rewritten", 11, "not what was signed", true},
		{"reorder", func(t *testing.T, dir string) {
			alter(t, dir, `UPDATE audit SET position = 100 WHERE position = 12; UPDATE audit SET position = 12 WHERE position = 17; UPDATE audit SET position = 17 WHERE position = 100`)
		}, "reordered", 0, "", true},
		{"rewrite", func(t *testing.T, dir string) { alter(t, dir, forge); rechain(t, dir) }, "rewritten", 11, "signed at", true},
		{"truncate", func(t *testing.T, dir string) { alter(t, dir, `DELETE FROM audit WHERE position > 27`) }, "truncated", 28, "the last 3 are missing", true},
		{"truncate to nothing", func(t *testing.T, dir string) { alter(t, dir, `DELETE FROM audit`) }, "truncated", 1, "the last 30 are missing", true},
		{"truncate to a checkpoint, with the later ones", func(t *testing.T, dir string) {
			alter(t, dir, `DELETE FROM audit WHERE position > 20; DELETE FROM audit_checkpoints WHERE size > 20`)
		}, "truncated", 21, "the last 10 are missing", false},
		{"rewrite without checkpoints", func(t *testing.T, dir string) {
			alter(t, dir, forge+`; DELETE FROM audit_checkpoints`)
			rechain(t, dir)
		}, "rewritten", 0, "signed at", false},
		{"take the database away", func(t *testing.T, dir string) {
			storetest.Remove(t, dir)
		}, "truncated", 1, "the last 30 are missing", false},
		{"a checkpoint of somebody else", func(t *testing.T, dir string) {
			note := keeper{"theirs"}.seal("sandboxmcp audit checkpoint v1\n20\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\ntime 2031-01-01T00:00:00.000000000Z\n")
			alter(t, dir, `UPDATE audit_checkpoints SET note = '`+note+`' WHERE size = 20`)
		}, "checkpoint", 0, "over 20 entries: its signature", true},
		{"a checkpoint elsewhere", func(t *testing.T, dir string) {
			alter(t, dir, `UPDATE audit_checkpoints SET size = 25 WHERE size = 20`)
		}, "checkpoint", 0, "was signed over 20", true},
		{"another edge", func(t *testing.T, dir string) {
			alter(t, dir, `UPDATE audit_checkpoints SET edge = (SELECT `+storetest.Zeros("edge")+` FROM audit_checkpoints WHERE size = 30) WHERE size = 30`)
		}, "checkpoint", 0, "edge", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			if rep := check(t, dir, second(dir)); !rep.OK {
				t.Fatalf("before: got %+v", rep)
			}
			tt.do(t, dir)
			for _, with := range [][]func(*audit.Evidence){{}, {second(dir), alone}, {alone}} {
				rep := check(t, dir, with...)
				if len(with) == 1 && !tt.without { // it cannot be seen, and that is what the others are for
					continue
				}
				if rep.OK || len(rep.Faults) == 0 {
					t.Errorf("with %d: got %+v, want a fault", len(with), rep)
					continue
				}
				f := rep.Faults[0]
				if f.Kind != tt.kind || tt.row != 0 && f.Row != tt.row || !strings.Contains(f.Reason, tt.reason) {
					t.Errorf("with %d: got %+v, want %s of row %d: %q", len(with), f, tt.kind, tt.row, tt.reason)
				}
			}
		})
	}
}

// The holder of the key can write a record that is sound by itself. The second checkpoint file
// shows the change.
func TestRewriteWithTheKey(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	filled(t, dir)
	r := openSealed(t, other)
	r.append(t, "a", 40)
	r.close(t)
	if rep := check(t, other); !rep.OK {
		t.Fatalf("the forgery: got %+v", rep)
	}
	rep := check(t, other, second(dir))
	if rep.OK || rep.Faults[0].Kind != "rewritten" || !strings.Contains(rep.Faults[0].Reason, "second place") {
		t.Errorf("got %+v", rep)
	}
	short := t.TempDir()
	r = openSealed(t, short)
	r.append(t, "a", 2)
	r.close(t)
	if rep := check(t, short, second(dir)); rep.OK || rep.Faults[0].Kind != "truncated" {
		t.Errorf("a shorter one: got %+v", rep)
	}
	rep = check(t, dir, func(e *audit.Evidence) { e.Open = keeper{"new"}.OpenNote })
	if rep.OK || rep.Faults[0].Kind != "checkpoint" {
		t.Errorf("under a new key: got %+v", rep)
	}
	rep = check(t, dir, func(e *audit.Evidence) { e.Open = nil })
	if rep.OK || rep.Faults[0].Kind != "key" {
		t.Errorf("without a key: got %+v", rep)
	}
}

// A record that was changed is not signed on: that would make it right.
func TestTamperedRecordIsNotSigned(t *testing.T) {
	for name, statement := range map[string]string{
		"cut, and its checkpoints": `DELETE FROM audit WHERE position > 20; DELETE FROM audit_checkpoints WHERE size > 20`,
		"cut":                      `DELETE FROM audit WHERE position > 27`,
		"no checkpoints":           `DELETE FROM audit_checkpoints`,
		"another edge":             `UPDATE audit_checkpoints SET edge = ` + storetest.Zeros("edge") + ``,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			before := check(t, dir)
			alter(t, dir, statement)
			r := openSealed(t, dir)
			r.append(t, "a", 120) // it is recorded all the same
			r.close(t)
			rep := check(t, dir)
			if rep.OK {
				t.Errorf("got a sound record %+v, want the fault to stay", rep)
			}
			if name == "cut" { // the rows behind take the places of those that have gone
				return
			}
			if rep.Checkpoints > before.Checkpoints {
				t.Errorf("checkpoints: got %d, then %d; want no more", before.Checkpoints, rep.Checkpoints)
			}
		})
	}
}

// A server that runs sees that what it has signed has gone.
func TestCutUnderARunningServer(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	r := openSealed(t, dir)
	r.append(t, "a", 60) // 50 of which are signed at once
	testkit.Until(t, "four checkpoints", func() bool { return check(t, dir).Checkpoints >= 4 })
	alter(t, dir, `DELETE FROM audit WHERE position > 10; DELETE FROM audit_checkpoints WHERE size > 10`)
	if err := os.Remove(audit.HeadFile(dir, store.Path(storetest.On(store.Config{Dir: dir})))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	r.append(t, "a", 2)
	r.close(t)
	if rep := check(t, dir, second(dir)); rep.OK || rep.Checkpoints != 1 {
		t.Errorf("got %+v", rep)
	}
}

func TestSecondPlace(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := audit.Open(t.Context(), s, audit.Config{Signer: ours, CheckpointFile: filepath.Join(dir, "none", "second")})
	if e := sandboxmcp.AsError(err); e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Hint, "audit_checkpoint_file") {
		t.Errorf("one that cannot be written to: got %v", err)
	}
	filled(t, dir)
	place := filepath.Join(dir, "second")
	whole, err := os.ReadFile(place)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(place); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("second checkpoint file: got mode %v, %v; want 0600", fi.Mode(), err)
	}
	// A write that was cut short is a fault, and spoils no other note.
	if err := os.WriteFile(place, append(whole, "sandboxmcp audit checkp"...), 0o600); err != nil {
		t.Fatal(err)
	}
	r := openSealed(t, dir)
	r.append(t, "a", 1)
	r.close(t)
	rep := check(t, dir, second(dir))
	if len(rep.Faults) != 1 || rep.Second.Size != 31 || rep.Second.Notes != 5 {
		t.Errorf("got %+v and %+v", rep.Faults, rep.Second)
	}
	if rep := check(t, dir, func(e *audit.Evidence) { e.CheckpointFile = filepath.Join(dir, "none") }); rep.OK {
		t.Error("a second checkpoint file that is missing: got a sound record, want a fault")
	}
}

// TestSecondPlaceRepeated: a note of the second place is checked once, however often it is
// repeated. Its repetitions are no faults: an appender that is killed may leave some.
func TestSecondPlaceRepeated(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	r := openSealed(t, dir)
	r.append(t, "a", 1)
	r.close(t)
	place := filepath.Join(dir, "second")
	whole, err := os.ReadFile(place)
	if err != nil {
		t.Fatal(err)
	}
	open := func() (opened int, rep sandboxmcp.AuditReport) {
		rep = check(t, dir, second(dir), func(e *audit.Evidence) {
			e.Open = func(note string) (string, error) { opened++; return ours.OpenNote(note) }
		})
		return opened, rep
	}
	_, once := open()
	if err := os.WriteFile(place, bytes.Repeat(whole, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, rep := open()
	if want := once.Second.Notes * 1000; !rep.OK || rep.Second.Notes != want || rep.Second.Size != once.Second.Size {
		t.Errorf("got %+v and %+v, want %d sound notes", rep.Faults, rep.Second, want)
	}
	if opened > 100 {
		t.Errorf("got %d checks of signatures, want each note to be checked once", opened)
	}
}

// One that stops taking writes costs no entry, is told, and gets the newest checkpoint later.
func TestSecondPlaceComesBack(t *testing.T) {
	dir := t.TempDir()
	place := filepath.Join(dir, "second")
	r := openSealed(t, dir)
	if err := errors.Join(os.Remove(place), os.Mkdir(place, 0o700)); err != nil {
		t.Fatal(err)
	}
	r.append(t, "a", 60)
	testkit.Until(t, "a checkpoint", func() bool { return check(t, dir).Checkpoints > 0 })
	testkit.Until(t, "the server says so", func() bool { return !r.l.Signing().Signed })
	if got := r.l.Signing(); strings.Contains(got.Reason, dir) || got.Since == nil {
		t.Errorf("got %+v, want a reason without a path, and since when", got)
	}
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the newest checkpoint is there without a further entry", func() bool { return r.l.Signing().Signed })
	r.append(t, "a", 1)
	r.close(t)
	if rep := check(t, dir, second(dir)); !rep.OK || rep.Second.Size != 61 {
		t.Errorf("got %+v %+v", rep, rep.Second)
	}
}

func TestHeadFile(t *testing.T) {
	if got, want := audit.HeadFile("/s", "/s/sandboxmcp.db"), "/s/sandboxmcp.head"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	a, b := audit.HeadFile("/s", "/elsewhere/audit.db"), audit.HeadFile("/s", "/other/audit.db")
	if a == b || filepath.Dir(a) != "/s" {
		t.Errorf("got %s and %s", a, b)
	}
}

// A record of a release that signed nothing is signed with the first new entry.
func TestOldRecordIsSigned(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	fill(t, s, "default", 2500)
	if rep := check(t, dir); rep.OK || rep.Faults[0].Kind != "unsigned" {
		t.Errorf("before: got %+v", rep.Faults)
	}
	r := openSealed(t, dir)
	r.append(t, "a", 1)
	r.close(t)
	if rep := check(t, dir); !rep.OK || rep.Head.Size != 2501 || rep.Checkpoints != 3 {
		t.Errorf("got %+v", rep)
	}
}

// Another process signs entries while a server runs, and they are removed with their checkpoint. The server signs
// nothing more, and the file that shows the removal stays.
func TestEntriesOfAnotherProcessThatWereRemoved(t *testing.T) {
	dir := t.TempDir()
	server := openSealed(t, dir)
	server.append(t, "a", 3)
	testkit.Until(t, "the files cover the entries of the server", func() bool {
		rep := check(t, dir, second(dir))
		return rep.Head.Size == 3 && rep.Second.Size == 3
	})
	other := openSealed(t, dir)
	other.append(t, "b", 2)
	other.close(t)
	alter(t, dir, `DELETE FROM audit WHERE position > 3; DELETE FROM audit_checkpoints WHERE size > 3`)
	server.append(t, "a", 4)
	testkit.Until(t, "the server tells", func() bool { return !server.l.Signing().Signed })
	server.close(t)
	if rep := check(t, dir); rep.OK || rep.Head.Size > 3 {
		t.Errorf("got a head of %d and %+v, want 3 and a fault", rep.Head.Size, rep.Faults)
	}
}

// TestTimesThatCannotBeKept: while the clock is in a year that the record cannot hold, nothing is recorded, signed or
// dropped. Once it is right again, the record is whole, and gets its checkpoints.
func TestTimesThatCannotBeKept(t *testing.T) {
	var now atomic.Pointer[time.Time]
	set := func(at time.Time) { now.Store(&at) }
	set(time.Now())
	r := openSealed(t, t.TempDir(), func(c *audit.Config) { c.Now = func() time.Time { return *now.Load() } })
	defer r.close(t)
	for _, year := range []int{10_000, 99_999, -1} {
		set(time.Date(year, 1, 2, 3, 4, 5, 0, time.UTC))
		if _, err := r.l.Append(t.Context(), entry("ns", 1)); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
			t.Errorf("an entry in year %d: got %v, want backend_unavailable", year, err)
		}
		e := entry("ns", 1)
		if _, err := r.l.Note(&e); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
			t.Errorf("a note in year %d: got %v, want backend_unavailable", year, err)
		}
		e.Timestamp = time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
		if _, err := r.l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "the entry is not signed", func() bool { return !r.l.Signing().Signed })
	}
	set(time.Now())
	r.append(t, "ns", 1)
	testkit.Until(t, "all are signed", func() bool {
		head, err := audit.Head(t.Context(), r.s.DB())
		return err == nil && head.Size == 4 && r.l.Signing().Signed
	})
	if page, err := audit.List(t.Context(), r.s.DB(), "ns", sandboxmcp.AuditQuery{}); err != nil || len(page.Entries) != 4 {
		t.Errorf("got %d entries and %v, want 4", len(page.Entries), err)
	}
}

// TestLargeRowsAreNotListed: a list does not read rows that are larger than servers write them, nor many large ones at once.
func TestLargeRowsAreNotListed(t *testing.T) {
	dir := t.TempDir()
	r := openSealed(t, dir)
	r.append(t, "a", 8)
	r.close(t)
	long := func(mib int) string {
		return `replace(replace('` + strings.Repeat("x", 1<<10) + `', 'x', '` + strings.Repeat("y", 1<<10) + `'), 'y', '` + strings.Repeat("z", mib) + `')`
	}
	alter(t, dir, `UPDATE audit SET detail = `+long(17)+` WHERE seq = 8`)
	s := open(t, dir)
	page, err := audit.List(t.Context(), s.DB(), "a", sandboxmcp.AuditQuery{})
	if err != nil || len(page.Entries) != 7 || page.Total != 8 {
		t.Errorf("one: got %d of %d entries, %v; want 7 of 8", len(page.Entries), page.Total, err)
	}
	alter(t, dir, `UPDATE audit SET detail = `+long(10)+` WHERE seq <= 7`)
	if page, err = audit.List(t.Context(), s.DB(), "a", sandboxmcp.AuditQuery{}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("seven: got %d entries, %v; want invalid_argument", len(page.Entries), err)
	}
	if page, err = audit.List(t.Context(), s.DB(), "a", sandboxmcp.AuditQuery{Limit: 3}); err != nil || len(page.Entries) != 3 {
		t.Errorf("three of them: got %d entries, %v; want 3", len(page.Entries), err)
	}
}

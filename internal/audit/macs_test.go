package audit_test

import (
	"bufio"
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// mute has the key of ours and signs no checkpoint, like a server that is killed before.
type mute struct{ keeper }

func (mute) Note(string) (string, error) { return "", errors.New("it was killed") }

// without signs as a release without MACs.
type without struct{ keeper }

func (w without) Note(text string) (string, error) {
	text, _, _ = strings.Cut(text, "macs from ")
	return w.keeper.Note(text)
}

func by(signer audit.Signer) func(*audit.Config) {
	return func(c *audit.Config) { c.Signer = signer }
}

// byKey lets Verify check MACs.
func byKey(e *audit.Evidence) { e.Signer = ours }

// tail adds three entries that have no checkpoint, of the namespaces a, b and a.
func tail(t *testing.T, dir string) {
	t.Helper()
	r := openSealed(t, dir, by(mute{ours}))
	r.append(t, "a", 1)
	r.append(t, "b", 1)
	r.append(t, "a", 1)
	r.close(t)
}

// older makes a record of a release without MACs: 30 entries, and 3 that have no checkpoint.
func older(t *testing.T, dir string) {
	t.Helper()
	for range 3 {
		r := openSealed(t, dir, by(without{ours}))
		r.append(t, "a", 6)
		r.append(t, "b", 4)
		r.close(t)
	}
	tail(t, dir)
	alter(t, dir, `UPDATE audit SET mac = NULL`)
}

// forge appends an entry as a writer of the database does that has no key: in its place and with its right hashes.
func forge(t *testing.T, dir string) {
	t.Helper()
	s := open(t, dir)
	if _, err := record(t, s, nil).Append(t.Context(), entry("a", 1)); err != nil {
		t.Fatal(err)
	}
}

// signsOn appends an entry, and wants the whole record signed.
func signsOn(t *testing.T, dir string) {
	t.Helper()
	r := openSealed(t, dir)
	r.append(t, "a", 1)
	r.close(t)
	if rep := check(t, dir, byKey, second(dir)); !rep.OK || rep.Tail.Entries != 0 {
		t.Errorf("got %d entries, %d of them without a checkpoint, and %+v, want none and no fault", rep.Entries, rep.Tail.Entries, rep.Faults)
	}
}

// refuses appends many entries, and wants none of the record signed beyond the first signed entries. The log and the
// check with the key name the row.
func refuses(t *testing.T, dir string, signed int64, row string) {
	t.Helper()
	log := &bytes.Buffer{}
	r := openSealed(t, dir, func(c *audit.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	r.append(t, "a", 120) // they are recorded all the same
	r.close(t)
	if rep := check(t, dir); rep.Head.Size > signed {
		t.Errorf("got a checkpoint over %d entries, want none over more than %d", rep.Head.Size, signed)
	}
	if !strings.Contains(log.String(), "no longer signed") || !strings.Contains(log.String(), row) {
		t.Errorf("log: got %q, want that the audit is no longer signed, and %q", log, row)
	}
	if rep := check(t, dir, byKey); rep.OK {
		t.Errorf("the check with the key: got a sound record, want a fault")
	}
}

// An entry that a writer of the database appends with its right hashes is not signed, whenever it comes.
func TestForgedEntryIsNotSigned(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	forge(t, dir)
	rep := check(t, dir, byKey)
	if rep.OK || len(rep.Faults) != 1 || rep.Faults[0].Kind != "forged" || rep.Faults[0].Row != 31 {
		t.Errorf("got %+v, want row 31 to be forged", rep.Faults)
	}
	if rep := check(t, dir); !rep.OK { // only a reader with the private key can find the entry
		t.Errorf("without the private key: got %+v, want no fault", rep.Faults)
	}
	refuses(t, dir, 30, "row 31")
}

// What stands before a forged entry is signed.
func TestEntriesBeforeAForgedOneAreSigned(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	tail(t, dir)
	forge(t, dir)
	refuses(t, dir, 33, "row 34")
	if rep := check(t, dir); rep.Head.Size != 33 {
		t.Errorf("got a checkpoint over %d entries, want 33", rep.Head.Size)
	}
}

// A server that runs does not sign an entry that is forged between its own.
func TestForgedUnderARunningServer(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	r := openSealed(t, dir)
	r.append(t, "a", 1)
	testkit.Until(t, "the entry is signed", func() bool { return check(t, dir).Head.Size == 31 })
	forge(t, dir)
	r.append(t, "a", 200)
	r.close(t)
	if rep := check(t, dir); rep.Head.Size != 31 {
		t.Errorf("got a checkpoint over %d entries, want 31", rep.Head.Size)
	}
}

// A server whose entries are not signed says why, and since when.
func TestSigningTellsOfAFault(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	r := openSealed(t, dir)
	defer r.close(t)
	r.append(t, "a", 1)
	testkit.Until(t, "the entry is signed", func() bool { return check(t, dir).Head.Size == 31 })
	if got := r.l.Signing(); !got.Signed || got.Reason != "" || got.Since != nil {
		t.Errorf("before the fault: got %+v, want that it is signed", got)
	}
	forge(t, dir)
	r.append(t, "a", 1)
	testkit.Until(t, "the fault is found", func() bool { return !r.l.Signing().Signed })
	got := r.l.Signing()
	if !strings.Contains(got.Reason, "row 32") || got.Since == nil {
		t.Fatalf("got %+v, want row 32 as the reason, and since when", got)
	}
	since := *got.Since
	r.append(t, "a", 200) // further entries change nothing
	if got = r.l.Signing(); got.Signed || !got.Since.Equal(since) {
		t.Errorf("later: got %+v, want the same fault since %s", got, since)
	}
}

// flaky signs while it works.
type flaky struct {
	keeper
	works *atomic.Bool
}

func (f flaky) Note(text string) (string, error) {
	if !f.works.Load() {
		return "", errors.New("open /secret/path: no such file")
	}
	return f.keeper.Note(text)
}

// A cause that passes is told as long as it holds. Callers get no text of it, which may have paths of the server.
func TestSigningIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	signer := flaky{ours, &atomic.Bool{}}
	r := openSealed(t, dir, by(signer))
	defer r.close(t)
	r.append(t, "a", 1)
	testkit.Until(t, "the entry cannot be signed", func() bool { return !r.l.Signing().Signed })
	if got := r.l.Signing(); got.Reason == "" || strings.Contains(got.Reason, "/secret") || got.Since == nil {
		t.Errorf("got %+v, want a reason without the path, and since when", got)
	}
	signer.works.Store(true)
	testkit.Until(t, "the entry is signed", func() bool { return r.l.Signing().Signed })
}

// Entries of a time that no checkpoint covers are counted.
func TestUnsignedEntriesAreCounted(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	count := func(before time.Time) (int64, time.Time) {
		t.Helper()
		s := open(t, dir)
		n, oldest, err := audit.Unsigned(t.Context(), s.DB(), before)
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		return n, oldest
	}
	later := time.Now().Add(time.Hour)
	if n, _ := count(later); n != 0 {
		t.Errorf("all signed: got %d entries, want none", n)
	}
	tail(t, dir)
	if n, oldest := count(later); n != 3 || time.Since(oldest) > time.Hour || oldest.After(time.Now()) {
		t.Errorf("got %d entries since %s, want 3 of now", n, oldest)
	}
	if n, _ := count(time.Now().Add(-time.Hour)); n != 0 {
		t.Errorf("older than an hour: got %d entries, want none", n)
	}
}

// MACs cannot be copied, moved or left out.
func TestMACsHold(t *testing.T) {
	const newer = `UPDATE audit SET position = position + 100 WHERE position > 30; `
	for name, tt := range map[string]struct {
		statement string
		args      []any
		signed    int64
		reason    string
		alone     bool // the file with the newest checkpoint is gone, too
	}{
		"no MAC":                       {statement: `UPDATE audit SET mac = NULL WHERE position = 32`, signed: 31, reason: "row 32"},
		"no MACs in the tail":          {statement: `UPDATE audit SET mac = NULL WHERE position > 30`, signed: 30, reason: "row 31"},
		"no MACs at all":               {statement: `UPDATE audit SET mac = NULL`, signed: 30, reason: "row 31"},
		"empty MACs":                   {statement: `UPDATE audit SET mac = ''`, signed: 30, reason: "row 31"},
		"the MAC of another":           {statement: `UPDATE audit SET mac = (SELECT mac FROM audit WHERE position = 31) WHERE position = 33`, signed: 32, reason: "row 33"},
		"a longer MAC":                 {statement: `UPDATE audit SET mac = mac || '00' WHERE position = 32`, signed: 31, reason: "row 32"},
		"two in one":                   {statement: `UPDATE audit SET mac = mac || ',' || mac WHERE position = 32`, signed: 30, reason: "after row 30"},
		"moved between namespaces":     {statement: newer + `UPDATE audit SET position = 31 WHERE position = 132; UPDATE audit SET position = 32 WHERE position = 131; UPDATE audit SET position = 33 WHERE position = 133`, signed: 30, reason: "row 31"},
		"removed between others":       {statement: newer + `DELETE FROM audit WHERE position = 132; UPDATE audit SET position = 31 WHERE position = 131; UPDATE audit SET position = 32 WHERE position = 133`, signed: 31, reason: "row 32"},
		"the statement removed":        {statement: `UPDATE audit SET mac = NULL; UPDATE audit_checkpoints SET note = replace(note, ?, '')`, args: []any{"macs from 1\n"}, reason: "checkpoint 30: its signature", alone: true},
		"the statement moved":          {statement: `UPDATE audit SET mac = NULL; UPDATE audit_checkpoints SET note = replace(note, ?, ?)`, args: []any{"macs from 1\n", "macs from 99\n"}, reason: "checkpoint 30: its signature", alone: true},
		"the newest checkpoint gone":   {statement: `UPDATE audit SET mac = NULL; DELETE FROM audit_checkpoints WHERE size = 30`, signed: 30, reason: "30 signed entries"},
		"an older checkpoint, no file": {statement: `UPDATE audit SET mac = NULL; DELETE FROM audit_checkpoints WHERE size > 10`, signed: 10, reason: "row 11", alone: true},
		"all checkpoints gone":         {statement: `UPDATE audit SET mac = NULL; DELETE FROM audit_checkpoints`, signed: 30, reason: "30 signed entries"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			tail(t, dir)
			if rep := check(t, dir, byKey); !rep.OK || rep.Tail.Entries != 3 {
				t.Fatalf("before: got %+v", rep)
			}
			storetest.Tamper(t, dir, tt.statement, tt.args...)
			if tt.alone {
				gone := audit.HeadFile(dir, store.Path(storetest.On(store.Config{Dir: dir})))
				if err := errors.Join(os.Remove(gone), os.Remove(filepath.Join(dir, "second"))); err != nil {
					t.Fatal(err)
				}
			}
			refuses(t, dir, tt.signed, tt.reason)
		})
	}
}

// The record of a release without MACs is signed on. Then MACs are needed.
func TestRecordOfAnOlderReleaseIsSigned(t *testing.T) {
	dir := t.TempDir()
	older(t, dir)
	if rep := check(t, dir, byKey); !rep.OK || rep.Entries != 33 || rep.Tail.Entries != 3 {
		t.Errorf("before: got %+v", rep)
	}
	signsOn(t, dir)
	forge(t, dir)
	refuses(t, dir, 34, "row 35")
}

// A writer of the database cannot make a record older than it is.
func TestNewRecordIsNoOlderOne(t *testing.T) {
	for name, statement := range map[string]string{
		"the MACs":                      `UPDATE audit SET mac = NULL`,
		"the MACs and newer checkpoint": `UPDATE audit SET mac = NULL; DELETE FROM audit_checkpoints WHERE size > 30`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			older(t, dir)
			signsOn(t, dir) // a checkpoint over 34 entries
			forge(t, dir)
			alter(t, dir, statement)
			refuses(t, dir, 34, "")
		})
	}
}

// Servers with one key sign the entries of each other. A server with another key signs nothing, and its entries
// are not signed.
func TestServersWithOneKey(t *testing.T) {
	dir := t.TempDir()
	x, y := openSealed(t, dir), openSealed(t, dir)
	for range 70 {
		x.append(t, "a", 1)
		y.append(t, "a", 1)
		y.append(t, "b", 1)
	}
	x.close(t)
	y.close(t)
	rep := check(t, dir, byKey, second(dir))
	if !rep.OK || rep.Head.Size != 210 || rep.Checkpoints < 2 {
		t.Errorf("got %d checkpoints, the newest over %d, and %+v, want some, 210 and no fault", rep.Checkpoints, rep.Head.Size, rep.Faults)
	}
	z := openSealed(t, dir, by(keeper{"theirs"}))
	z.append(t, "a", 1)
	z.close(t)
	if rep := check(t, dir, byKey); rep.OK || rep.Head.Size != 210 || rep.Faults[0].Row != 211 || rep.Faults[0].Kind != "forged" {
		t.Errorf("with a server of another key: got %+v, want row 211 to be forged", rep)
	}
	refuses(t, dir, 210, "row 211")
}

// The entries of a server that was killed have MACs, and the next one signs them.
func TestEntriesOfAKilledServerAreSigned(t *testing.T) {
	dir := t.TempDir()
	const n = 1000
	cmd := command(t, dir, "signer", n)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for got := 0; lines.Scan(); {
		if got++; got == n/4 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("got a process that ended, want one that was killed")
	}
	if rep := check(t, dir, byKey); !rep.OK || rep.Entries < n/4 || rep.Entries >= n {
		t.Errorf("got %d entries and %+v, want some and no fault", rep.Entries, rep.Faults)
	}
	signsOn(t, dir)
}

// Entries that were dropped leave the statement about MACs.
func TestMACsAfterADrop(t *testing.T) {
	dir := t.TempDir()
	c := aged(t, dir)
	c.at = c.at.AddDate(1, 0, 0)
	if n := drop(t, dir, c, 1); n == 0 {
		t.Fatal("got no entry dropped, want some")
	}
	signsOn(t, dir)
	forge(t, dir)
	alter(t, dir, `UPDATE audit SET mac = NULL`)
	rep := check(t, dir)
	refuses(t, dir, rep.Head.Size, "it has no MAC")
}

// TestOnlyGenuineEntries: an entry that was changed, also one whose hashes are right again, is not genuine. Entries of other
// actions and namespaces are left out.
func TestOnlyGenuineEntries(t *testing.T) {
	dir := t.TempDir()
	r := openSealed(t, dir)
	for _, id := range []string{"first", "second", "third"} {
		if err := r.s.Update(t.Context(), r.l.Op(&sandboxmcp.AuditEntry{Action: "asked", Phase: sandboxmcp.PhaseIntent, Namespace: "a", Metadata: map[string]any{"id": id}})); err != nil {
			t.Fatal(err)
		}
	}
	r.append(t, "a", 1)
	r.append(t, "b", 1)
	r.close(t)
	genuine := func(action string, signer audit.Signer) (all string) {
		r := openSealed(t, dir, func(c *audit.Config) { c.Signer = signer })
		defer r.close(t)
		if err := r.l.Genuine(t.Context(), r.s.DB(), "a", [2]string{action, action}, func(e audit.Written) bool { all = e.Metadata + all; return true }); err != nil {
			t.Error(err)
		}
		return all
	}
	const asked = "asked"
	for _, c := range []struct {
		change string
		hashes bool // they are computed anew
		want   string
	}{
		{"", false, `{"id":"first"}{"id":"second"}{"id":"third"}`},
		{`UPDATE audit SET metadata = '{"id":"other"}' WHERE metadata LIKE '%third%'`, false, `{"id":"first"}{"id":"second"}`},
		{``, true, `{"id":"first"}{"id":"second"}`},
		{`UPDATE audit SET mac = NULL WHERE metadata LIKE '%second%'`, false, `{"id":"first"}`},
	} {
		if c.change != "" {
			alter(t, dir, c.change)
		}
		if c.hashes {
			storetest.Tamper(t, dir, "SELECT 1")
			rechain(t, dir)
		}
		if got := genuine(asked, ours); got != c.want {
			t.Errorf("after %q: got %s, want %s", c.change, got, c.want)
		}
	}
	if got := genuine(asked, keeper{"theirs"}); got != "" {
		t.Errorf("with another key: got %s, want none", got)
	}
	if got := genuine("other", ours); got != "" {
		t.Errorf("of another action: got %s, want none", got)
	}
}

package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestReader: each entry of an action is read once. An entry that a writer of the database has added behind the end and removed
// again keeps no later entry from being read.
func TestReader(t *testing.T) {
	r := openSealed(t, filepath.Join(t.TempDir(), "state"))
	defer r.close(t)
	var got []string
	reader := r.l.Reader()
	reader.Want("approval", true, func(request, _ string, _ bool) { got = append(got, request) })
	read := func(want ...string) {
		t.Helper()
		got = nil
		err := reader.Read(t.Context(), r.s.DB(), "approval")
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	add := func(ns sandboxmcp.Namespace, request sandboxmcp.RequestID) {
		t.Helper()
		if _, err := r.l.Append(t.Context(), sandboxmcp.AuditEntry{Action: "approval", Phase: sandboxmcp.PhaseOutcome, Namespace: ns, RequestID: request}); err != nil {
			t.Fatal(err)
		}
	}
	read()
	add("a", "r1")
	r.append(t, "a", 2)
	add("b", "r2")
	read("r1", "r2")
	read()
	r.append(t, "a", 1)
	read()
	add("a", "r3")
	read("r3")
	const far = `INSERT INTO audit (position, id, namespace, seq, timestamp, action, phase, request_id, session_id, language, detail, actor, metadata, prev, hash, mac)
		SELECT 1000000000000000, id || '1', 'far', 1, timestamp, action, phase, 'far', session_id, language, detail, actor, metadata, prev, hash, mac FROM audit WHERE request_id = 'r3'`
	storetest.Tamper(t, r.dir, far)
	read("far")
	storetest.Tamper(t, r.dir, `DELETE FROM audit WHERE namespace = 'far'`)
	add("b", "r4")
	storetest.Tamper(t, r.dir, far)
	read("r4", "far")
	storetest.Tamper(t, r.dir, `DELETE FROM audit WHERE namespace = 'far' OR request_id = 'r4'`)
	read("r1", "r2", "r3") // the entry at the place is gone
}

// TestDroppedEntriesAreNotInDoubt: a reader goes on although the entries up to which it has read the record, and many later ones,
// were dropped because of their age. Entries that were removed without a signed statement stay in doubt.
func TestDroppedEntriesAreNotInDoubt(t *testing.T) {
	dir := t.TempDir()
	c := aged(t, dir)
	r := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
	defer r.close(t)
	var got []string
	reader := r.l.Reader()
	reader.Want("approval", true, func(request, _ string, _ bool) { got = append(got, request) })
	read := func(doubtful bool) {
		t.Helper()
		if err := reader.Read(t.Context(), r.s.DB(), "approval"); err != nil || reader.Doubtful() != doubtful {
			t.Fatalf("got %v, in doubt %v; want %v", err, reader.Doubtful(), doubtful)
		}
	}
	read(false)
	other := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
	other.append(t, "a", 1100)
	other.close(t)
	c.at = c.at.Add(100 * time.Hour)
	other = openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
	if _, err := other.l.Append(t.Context(), sandboxmcp.AuditEntry{Action: "approval", Phase: sandboxmcp.PhaseOutcome, Namespace: "a", RequestID: "r1"}); err != nil {
		t.Fatal(err)
	}
	other.close(t)
	if n := drop(t, dir, c, time.Hour); n != 1132 {
		t.Fatalf("got %d entries dropped, want 1132", n)
	}
	read(false)
	if !slices.Contains(got, "r1") {
		t.Errorf("got %v, want the new entry", got)
	}
	other = openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
	other.append(t, "a", 2)
	other.close(t)
	storetest.Tamper(t, dir, `DELETE FROM audit WHERE position = (SELECT max(position) - 1 FROM audit)`)
	read(true)
}

// readOne returns a record with four signed entries, and a reader that has read the first.
func readOne(t *testing.T, dir string) (*sealed, *audit.Reader) {
	t.Helper()
	r := openSealed(t, dir)
	reader := r.l.Reader()
	reader.Want("approval", true, func(string, string, bool) {})
	r.append(t, "a", 1)
	if err := reader.Read(t.Context(), r.s.DB(), "approval"); err != nil {
		t.Fatal(err)
	}
	r.append(t, "a", 3)
	testkit.Until(t, "the entries are signed", func() bool { return r.l.Signed() == 4 })
	return r, reader
}

// TestHiddenEntriesAreTold: an entry that a server cannot read may be a revocation. A writer of the database may hide it from
// connections that read, so that the server which signs finds it, and put it back before somebody verifies the record.
func TestHiddenEntriesAreTold(t *testing.T) {
	for name, c := range map[string]struct{ hide, reason string }{
		"nothing": {`SELECT 1`, ""},
		"missing": {`DELETE FROM audit WHERE position = 2`, "row 2 of"},
		"changed": {`UPDATE audit SET detail = 'changed' WHERE position = 2`, "row 2 of"},
		"the end": {`DELETE FROM audit WHERE position > 2`, "row 3 of"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, reader := readOne(t, dir)
			defer r.close(t)
			alter(t, dir, `CREATE TABLE kept AS SELECT * FROM audit; `+c.hide)
			if err := reader.Follow(t.Context(), r.s.DB()); err != nil {
				t.Fatal(err)
			}
			if got := r.l.Signing(); got.Signed != (c.reason == "") || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %+v, want %q", got, c.reason)
			}
			alter(t, dir, `DELETE FROM audit; INSERT INTO audit SELECT * FROM kept; DROP TABLE kept`) // as the end of a view does
		})
	}
}

// TestAHiddenRecordIsTold: a writer of the database may hide all entries from connections that read, from the start of a server on.
func TestAHiddenRecordIsTold(t *testing.T) {
	for name, hide := range map[string]string{"missing": `DELETE FROM audit`, "changed": `UPDATE audit SET detail = 'changed'`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := openSealed(t, dir)
			defer r.close(t)
			r.append(t, "a", 3)
			testkit.Until(t, "the entries are signed", func() bool { return r.l.Signed() == 3 })
			alter(t, dir, `CREATE TABLE kept AS SELECT * FROM audit; `+hide)
			reader := r.l.Reader()
			reader.Want("approval", true, func(string, string, bool) {})
			if err := reader.Read(t.Context(), r.s.DB(), "approval"); err != nil {
				t.Fatal(err)
			}
			if err := reader.Follow(t.Context(), r.s.DB()); err != nil {
				t.Fatal(err)
			}
			if got := r.l.Signing(); got.Signed || !strings.Contains(got.Reason, "row 1 of") {
				t.Errorf("got %+v, want that row 1 is missing", got)
			}
			alter(t, dir, `DELETE FROM audit; INSERT INTO audit SELECT * FROM kept; DROP TABLE kept`)
		})
	}
}

// TestWhatIsUndoneInMemoryIsNotMissing: connections that read a database in memory see entries before they are committed.
func TestWhatIsUndoneInMemoryIsNotMissing(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), SQLitePath: store.MemoryPath})
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), s, audit.Config{Signer: ours})
	if err != nil {
		t.Fatal(err)
	}
	r := &sealed{s: s, l: l}
	defer r.close(t)
	reader, seen := l.Reader(), false
	reader.Want("execute", true, func(request, _ string, _ bool) { seen = seen || request == "r2" })
	r.append(t, "a", 1)
	e, undone := entry("a", 2), errors.New("undone")
	err = s.Update(t.Context(), l.Op(&e), func(ctx context.Context, _ *sql.Tx) error {
		if err := reader.Read(ctx, s.DB(), "execute"); err != nil {
			t.Error(err)
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	if err = reader.Follow(t.Context(), s.DB()); err != nil {
		t.Fatal(err)
	}
	if !seen {
		t.Error("the reader has not seen the entry that was undone")
	}
	if got := l.Signing(); !got.Signed {
		t.Errorf("got %+v, want that the record is signed", got)
	}
}

// ahead runs a function before a statement looks for one entry.
type ahead struct {
	store.Querier

	before func()
}

func (f ahead) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if strings.Contains(query, "position = ?") {
		f.before()
	}
	return f.Querier.QueryContext(ctx, query, args...)
}

// TestFollowKeepsDoubtsAboutTheEnd: an entry that was missing is there again while the server looks for it, and a later one is changed.
func TestFollowKeepsDoubtsAboutTheEnd(t *testing.T) {
	dir := t.TempDir()
	r, reader := readOne(t, dir)
	defer r.close(t)
	alter(t, dir, `CREATE TABLE kept AS SELECT * FROM audit; DELETE FROM audit WHERE position = 2; UPDATE audit SET detail = 'changed' WHERE position = 4`)
	restore := func() { alter(t, dir, `INSERT INTO audit SELECT * FROM kept WHERE position = 2`) }
	if err := reader.Follow(t.Context(), ahead{r.s.DB(), restore}); err != nil {
		t.Fatal(err)
	}
	if !reader.Doubtful() {
		t.Error("the reader reads the changed entry no more")
	}
	alter(t, dir, `DELETE FROM audit; INSERT INTO audit SELECT * FROM kept; DROP TABLE kept`)
}

// TestAReaderThatBeginsAtTheEndMissesNoEntry: a reader checks each entry that is added once it has begun, also if the record had none
// then, or if a writer of the database had added others behind its end.
func TestAReaderThatBeginsAtTheEndMissesNoEntry(t *testing.T) {
	const forged = `INSERT INTO audit (position, id, namespace, seq, timestamp, action, phase, request_id, session_id, language, detail, actor, metadata, prev, hash, mac)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250)
		SELECT 1000000000000000 + i, id || i, 'far', i, timestamp, action, phase, 'far', session_id, language, detail, actor, metadata, prev, hash, mac FROM audit, n WHERE position = 1`
	for name, statement := range map[string]string{"no entries": "", "others behind the end": forged} {
		t.Run(name, func(t *testing.T) {
			storetest.SQLite(t)
			r := openSealed(t, filepath.Join(t.TempDir(), "state"))
			defer r.close(t)
			if statement != "" {
				r.append(t, "a", 1)
				storetest.Tamper(t, r.dir, statement)
			}
			genuine := 0
			reader := r.l.Reader()
			reader.Want("remove_package", false, func(_, _ string, is bool) {
				if is {
					genuine++
				}
			})
			read := func() {
				t.Helper()
				if err := reader.Read(t.Context(), r.s.DB(), "remove_package"); err != nil {
					t.Fatal(err)
				}
			}
			read()
			storetest.Tamper(t, r.dir, `DELETE FROM audit WHERE namespace = 'far'`)
			if _, err := r.l.Append(t.Context(), sandboxmcp.AuditEntry{Action: "remove_package", Phase: sandboxmcp.PhaseOutcome, Namespace: "a"}); err != nil {
				t.Fatal(err)
			}
			storetest.Tamper(t, r.dir, `UPDATE audit SET detail = 'changed' WHERE action = 'remove_package'; `+strings.ReplaceAll(statement, "WHERE position = 1", "WHERE action = 'remove_package'"))
			read()
			storetest.Tamper(t, r.dir, `DELETE FROM audit WHERE namespace = 'far'; UPDATE audit SET detail = '' WHERE action = 'remove_package'`)
			read()
			if genuine == 0 {
				t.Error("got no genuine entry, want the restored one")
			}
		})
	}
}

// TestANumberWithoutAForm: a writer of the database puts a number there that is not finite, which JSON cannot have. The entry is
// reported as changed, lists show it without the number, and a reader goes on.
func TestANumberWithoutAForm(t *testing.T) {
	numbers := []string{"9e999", "-9e999"}
	if storetest.Postgres() {
		numbers = []string{"'Infinity'", "'-Infinity'", "'NaN'"}
	}
	for _, number := range numbers {
		dir := t.TempDir()
		filled(t, dir)
		r := openSealed(t, dir)
		reader := r.l.Reader()
		reader.Want("approval", false, func(string, string, bool) {})
		read := func() {
			if err := reader.Read(t.Context(), r.s.DB(), "approval"); err != nil {
				t.Error(err)
			}
		}
		read()
		r.append(t, "a", 1)
		alter(t, dir, `UPDATE audit SET duration_ms = `+number+` WHERE position = 31`)
		read()
		page, err := r.l.List(t.Context(), "a", sandboxmcp.AuditQuery{Limit: 1})
		if err != nil || len(page.Entries) != 1 || page.Entries[0].DurationMS != nil {
			t.Errorf("%s: got %+v and %v, want one entry without the number", number, page.Entries, err)
		}
		r.close(t)
		if rep := check(t, dir); rep.OK || rep.Faults[0].Kind != "edited" || rep.Faults[0].Row != 31 {
			t.Errorf("%s: got %+v, want that row 31 was edited", number, rep.Faults)
		}
	}
}

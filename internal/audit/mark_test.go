package audit_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// tells wants the server to stop signing because of a row.
func (r *sealed) tells(t *testing.T, row string) {
	t.Helper()
	testkit.Until(t, "the server tells that "+row+" is missing", func() bool {
		s := r.l.Signing()
		return !s.Signed && strings.Contains(s.Reason, row) && strings.Contains(s.Reason, ", which a server has appended, is missing")
	})
}

// soundly closes the server, and wants it to sign all of the record without an alarm.
func (r *sealed) soundly(t *testing.T) {
	t.Helper()
	r.close(t)
	if s := r.l.Signing(); !s.Signed {
		t.Errorf("got a false alarm: %s", s.Reason)
	}
	if rep := check(t, r.dir, byKey, second(r.dir)); !rep.OK || rep.Tail.Entries != 0 {
		t.Errorf("got %d entries without a checkpoint and %+v, want none and no fault", rep.Tail.Entries, rep.Faults)
	}
}

// TestEntriesWithoutACheckpointThatWereRemoved: a writer of the database removes entries that have no checkpoint yet. The
// server reports that, whatever entries follow.
func TestEntriesWithoutACheckpointThatWereRemoved(t *testing.T) {
	for name, then := range map[string]func(*testing.T, *sealed){
		"nothing is appended":    func(*testing.T, *sealed) {},
		"the server appends":     func(t *testing.T, r *sealed) { r.append(t, "a", 2) },
		"the namespace is new":   func(t *testing.T, r *sealed) { r.append(t, "c", 1) },
		"another server appends": func(t *testing.T, r *sealed) { o := openSealed(t, r.dir); o.append(t, "b", 4); o.close(t) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			r := openSealed(t, dir)
			defer r.close(t)
			r.append(t, "a", 1)
			r.append(t, "b", 1)
			alter(t, dir, `DELETE FROM audit WHERE position > 31`)
			then(t, r)
			r.tells(t, "row 32")
		})
	}
}

// A trigger removes each entry of a namespace in the transaction that appends it. The server tells, and a
// checkpoint does not cover what follows.
func TestEntriesThatATriggerRemoves(t *testing.T) {
	storetest.SQLite(t)
	remove := []string{
		`DROP TRIGGER audit_no_delete`,
		`CREATE TRIGGER another AFTER INSERT ON audit WHEN NEW.namespace = 'b' BEGIN DELETE FROM audit WHERE position = NEW.position; END`,
	}
	for name, add := range map[string]func(*sealed){
		"alone":               func(r *sealed) { r.append(t, "b", 1) },
		"before others":       func(r *sealed) { r.append(t, "b", 1); r.append(t, "a", 1) },
		"in one Update":       func(r *sealed) { r.update(t, nil, "b", "a", "a") },
		"in many":             func(r *sealed) { r.append(t, "a", 1); r.append(t, "b", 3); r.append(t, "a", 120) },
		"after an undone one": func(r *sealed) { r.update(t, errors.New("undo"), "a"); r.append(t, "b", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			raw(t, dir, remove...)
			r := openSealed(t, dir)
			defer r.close(t)
			add(r)
			r.tells(t, "row 3")
		})
	}
}

// raw runs statements on a SQLite database, and leaves its triggers as they are.
func raw(tb testing.TB, dir string, statements ...string) {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+store.Path(store.Config{Dir: dir})+"?_pragma=busy_timeout(5000)")
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.ExecContext(tb.Context(), s); err != nil {
			tb.Errorf("%s: %v", s, err)
		}
	}
	if err := db.Close(); err != nil {
		tb.Error(err)
	}
}

// update appends an entry of each namespace in one Update, which ends with an error or nil.
func (r *sealed) update(tb testing.TB, with error, all ...sandboxmcp.Namespace) {
	tb.Helper()
	var ops []store.Op
	for i, ns := range all {
		e := entry(ns, i)
		ops = append(ops, r.l.Op(&e))
	}
	ops = append(ops, func(context.Context, *sql.Tx) error { return with })
	if err := r.s.Update(tb.Context(), ops...); !errors.Is(err, with) {
		tb.Error(err)
	}
}

// Undone Updates, alone and among others in one transaction, are no alarm.
func TestUndoneEntriesAreNoAlarm(t *testing.T) {
	r := openSealed(t, t.TempDir())
	undo := errors.New("undo")
	r.append(t, "a", 2)
	r.update(t, undo, "a", "b")
	r.append(t, "b", 1)
	var wg sync.WaitGroup
	for i := range 8 { // those that wait share a transaction
		wg.Go(func() {
			for range 20 {
				r.update(t, [2]error{nil, undo}[i%2], "a", "b")
			}
		})
	}
	wg.Wait()
	r.update(t, undo, "a")
	r.append(t, "c", 1)
	r.update(t, undo, "a")
	r.soundly(t)
}

// The newest entry of a server was signed by another one and dropped because of its age.
func TestDroppedMarkIsNoAlarm(t *testing.T) {
	dir := t.TempDir()
	r := openSealed(t, dir)
	r.append(t, "a", 3)
	other := openSealed(t, dir)
	other.append(t, "b", 1)
	other.close(t)
	other = openSealed(t, dir)
	other.append(t, "b", 2)
	if n, err := other.l.Drop(t.Context(), time.Nanosecond); err != nil || n == 0 {
		t.Fatalf("dropped %d entries: %v", n, err)
	}
	r.append(t, "a", 1)
	other.close(t)
	r.soundly(t)
}

// Several servers append in turn.
func TestSeveralServersAreNoAlarm(t *testing.T) {
	dir := t.TempDir()
	x, y := openSealed(t, dir), openSealed(t, dir)
	for range 60 {
		x.append(t, "a", 1)
		y.append(t, "b", 2)
		x.update(t, errors.New("undo"), "b")
	}
	x.close(t)
	y.soundly(t)
	if s := x.l.Signing(); !s.Signed {
		t.Errorf("got a false alarm: %s", s.Reason)
	}
}

// Another process has written the head file since a server compared it, and its entries are gone. The server does
// not replace the file.
func TestUnknownHeadIsComparedBeforeItIsReplaced(t *testing.T) {
	dir := t.TempDir()
	server := openSealed(t, dir)
	server.append(t, "a", 3)
	head := server.cfg.HeadFile
	testkit.Until(t, "the files cover the entries of the server", func() bool { return check(t, dir).Head.Size == 3 })
	testkit.Until(t, "the head file is there", func() bool { _, err := os.Stat(head); return err == nil })
	other := openSealed(t, dir)
	other.append(t, "b", 2)
	other.close(t)
	alter(t, dir, `DELETE FROM audit WHERE position > 3; DELETE FROM audit_checkpoints WHERE size > 3`)
	kept, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	server.l.PublishAsIf(9, ours)
	if now, err := os.ReadFile(head); err != nil || !bytes.Equal(now, kept) {
		t.Errorf("got %q, %v, want %q", now, err, kept)
	}
	if s := server.l.Signing(); s.Signed {
		t.Error("the server does not tell")
	}
	server.close(t)
}

// A server finds that entries were removed which its files say were signed, although another server, which has files of its own,
// has signed others since, and a writer of the database says that entries were dropped because of their age.
func TestARowAboutDroppedEntriesHidesNoRemoval(t *testing.T) {
	dir := t.TempDir()
	first := openSealed(t, dir)
	first.append(t, "a", 3)
	first.close(t)
	alter(t, dir, `DELETE FROM audit; DELETE FROM audit_checkpoints`)
	elsewhere := func(c *audit.Config) { c.HeadFile, c.CheckpointFile = filepath.Join(t.TempDir(), "head"), "" }
	other := openSealed(t, dir, elsewhere)
	other.append(t, "b", 5)
	other.close(t)
	kind := "BLOB"
	if storetest.Postgres() {
		kind = "BYTEA"
	}
	alter(t, dir, `INSERT INTO audit_rotations (size, note, edge) VALUES (1000, 'none', CAST('' AS `+kind+`))`)
	again := openSealed(t, dir)
	again.append(t, "a", 1)
	testkit.Until(t, "the server tells", func() bool { return !again.l.Signing().Signed })
	again.close(t)
}

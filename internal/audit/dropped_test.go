package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// clock is what the record takes for the time.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// aged makes a record of 30 entries, ten a day, of which a has the first only.
func aged(t *testing.T, dir string) *clock {
	t.Helper()
	c := &clock{time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)}
	for day, ns := range []sandboxmcp.Namespace{"a", "b", "b"} {
		r := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
		if day == 0 {
			r.append(t, "a", 2)
		}
		r.append(t, ns, 10)
		r.close(t)
		c.at = c.at.Add(24 * time.Hour)
	}
	return c
}

func drop(t *testing.T, dir string, c *clock, keep time.Duration) int64 {
	t.Helper()
	r := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
	defer r.close(t)
	n, err := r.l.Drop(t.Context(), keep)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Entries go by their age, up to a checkpoint, and what stays verifies. A chain
// of which nothing is left goes on where it was.
func TestDrop(t *testing.T) {
	dir := t.TempDir()
	c := aged(t, dir) // on the fourth day
	if n := drop(t, dir, c, 0); n != 0 {
		t.Errorf("got %d entries dropped, want none", n)
	}
	if n := drop(t, dir, c, 100*time.Hour); n != 0 {
		t.Errorf("got %d entries dropped, want none before their time", n)
	}
	if n := drop(t, dir, c, 60*time.Hour); n != 12 {
		t.Errorf("%d entries went, want 12", n)
	}
	rep := check(t, dir, second(dir))
	if !rep.OK || rep.Entries != 20 || rep.Dropped == nil || rep.Dropped.Size != 12 || rep.Head.Size != 32 {
		t.Errorf("got %+v", rep)
	}
	r := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
	e, err := r.l.Append(t.Context(), entry("a", 0))
	if err != nil || e.Seq != 13 || strings.Trim(e.Prev, "0") == "" {
		t.Errorf("the next entry of a: got %d after %s (%v)", e.Seq, e.Prev, err)
	}
	r.close(t)
	c.at = c.at.Add(1000 * time.Hour)
	if n := drop(t, dir, c, time.Hour); n != 20 {
		t.Errorf("%d entries went, want 20: one stays", n)
	}
	if rep := check(t, dir, second(dir)); !rep.OK || rep.Entries != 1 || rep.Dropped.Size != 32 || rep.Head.Size != 33 {
		t.Errorf("got %+v", rep)
	}
	r = openSealed(t, dir)
	r.append(t, "b", 1)
	r.close(t)
	if rep := check(t, dir, second(dir)); !rep.OK || rep.Head.Size != 34 {
		t.Errorf("got %+v", rep)
	}
}

// Drop removes only what is signed as it is. A changed entry stays, because its change could
// not be proved afterwards.
func TestDropRefuses(t *testing.T) {
	for name, statement := range map[string]string{
		"edit":                 `UPDATE audit SET action = 'x' WHERE position = 5`,
		"delete":               `DELETE FROM audit WHERE position = 5`,
		"another edge":         `UPDATE audit_checkpoints SET edge = ` + storetest.Zeros("edge") + ` WHERE size = 12`,
		"somebody else's note": `UPDATE audit_checkpoints SET note = replace(note, 'v1', 'v2') WHERE size = 12`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := aged(t, dir)
			alter(t, dir, statement)
			r := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
			defer r.close(t)
			if n, err := r.l.Drop(t.Context(), 60*time.Hour); err == nil || n != 0 {
				t.Errorf("got %d entries dropped, %v; want none and an error", n, err)
			}
		})
	}
}

// Dropped entries are not to be had by deleting rows and tables.
func TestForgedDrop(t *testing.T) {
	for name, statement := range map[string]string{
		"no statement":            `DELETE FROM audit_rotations`,
		"another statement":       `UPDATE audit_rotations SET note = replace(note, 'dropped', 'droped')`,
		"more has gone":           `DELETE FROM audit WHERE position < 20`,
		"another end":             `UPDATE audit_dropped SET seq = 40`,
		"another namespace ended": `INSERT INTO audit_dropped VALUES ('c', 1, 'x')`,
		"another size":            `UPDATE audit_rotations SET size = 22; DELETE FROM audit WHERE position <= 22`,
		"another edge":            `UPDATE audit_rotations SET edge = ` + storetest.Zeros("edge") + ``,
		"all of it":               `DELETE FROM audit; DELETE FROM audit_checkpoints; DELETE FROM audit_rotations; DELETE FROM audit_dropped`,
		"all but the statement":   `DELETE FROM audit; DELETE FROM audit_checkpoints`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := aged(t, dir)
			if n := drop(t, dir, c, 60*time.Hour); n != 12 {
				t.Fatalf("%d entries went, want 12", n)
			}
			alter(t, dir, statement)
			if rep := check(t, dir); rep.OK {
				t.Errorf("got a sound record %+v, want a fault", rep)
			}
		})
	}
}

// The database itself refuses to let a row go that is under no statement.
func TestTriggersOfDrop(t *testing.T) {
	dir := t.TempDir()
	c := aged(t, dir)
	drop(t, dir, c, 60*time.Hour)
	s := open(t, dir)
	for _, statement := range []string{`DELETE FROM audit WHERE position = 13`, `DELETE FROM audit_checkpoints WHERE size = 12`, `UPDATE audit_checkpoints SET size = 1`} {
		if err := s.Update(t.Context(), execute(statement)); err == nil {
			t.Errorf("%s: got no error, want a refusal", statement)
		}
	}
}

// Nothing is dropped if the statement about earlier entries does not hold. The next statement would confirm what
// was changed.
func TestDropAfterAChangedStatement(t *testing.T) {
	for name, statement := range map[string]string{
		"an end has gone":         `DELETE FROM audit_dropped WHERE namespace = 'a'`,
		"another end":             `UPDATE audit_dropped SET seq = 40 WHERE namespace = 'a'`,
		"another namespace ended": `INSERT INTO audit_dropped VALUES ('c', 1, 'x')`,
		"another statement":       `UPDATE audit_rotations SET note = replace(note, 'dropped', 'droped')`,
		"no statement":            `DELETE FROM audit_rotations`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := aged(t, dir)
			if n := drop(t, dir, c, 60*time.Hour); n != 12 {
				t.Fatalf("%d entries went, want 12", n)
			}
			alter(t, dir, statement)
			r := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
			if n, err := r.l.Drop(t.Context(), 36*time.Hour); n != 0 || err == nil {
				t.Errorf("got %d entries dropped, %v; want none and an error", n, err)
			}
			if r.l.Signing().Signed {
				t.Error("the record is still signed, want an end of the signing")
			}
			r.close(t)
			if rep := check(t, dir); rep.OK {
				t.Errorf("got a sound record %+v, want a fault", rep)
			}
		})
	}
}

// An index that hides young entries does not have them dropped.
func TestDropDespiteAnIndex(t *testing.T) {
	storetest.SQLite(t)
	dir := t.TempDir()
	c := aged(t, dir)
	alter(t, dir, `CREATE INDEX hides ON audit (position, timestamp) WHERE timestamp < '2031-01-02' OR position = 32; PRAGMA writable_schema = ON;
		UPDATE sqlite_master SET sql = 'CREATE INDEX hides ON audit (position, timestamp)' WHERE name = 'hides'`)
	r := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
	if n, err := r.l.Drop(t.Context(), 60*time.Hour); n != 0 || err == nil {
		t.Errorf("got %d entries dropped, %v; want none and an error", n, err)
	}
	r.close(t)
	alter(t, dir, `DROP INDEX hides; DELETE FROM audit WHERE position <= (SELECT max(size) FROM audit_rotations)`)
	if rep := check(t, dir); rep.OK || rep.Entries != 32 {
		t.Errorf("got %d entries and faults %v, want 32 and what the server has found", rep.Entries, rep.Faults)
	}
}

// A row whose text is that of two rows does not stand for both.
func TestTwoEndsInOneRow(t *testing.T) {
	const of = `(SELECT namespace || ' ' || seq || ' ' || hash FROM audit_dropped WHERE namespace = `
	for gone, statement := range map[string]string{
		"a": "UPDATE audit_dropped SET namespace = " + of + "'a') || '\n' || namespace WHERE namespace = 'b'",
		"b": "UPDATE audit_dropped SET hash = hash || '\n' || " + of + "'b') WHERE namespace = 'a'",
	} {
		dir := t.TempDir()
		c := &clock{time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)}
		for _, ns := range []sandboxmcp.Namespace{"a", "b", "c"} {
			r := openSealed(t, dir, func(cfg *audit.Config) { cfg.Now = c.now })
			r.append(t, ns, 2)
			r.close(t)
			c.at = c.at.Add(24 * time.Hour)
		}
		if n := drop(t, dir, c, 36*time.Hour); n != 4 {
			t.Fatalf("%d entries went, want 4", n)
		}
		alter(t, dir, statement)
		alter(t, dir, `DELETE FROM audit_dropped WHERE namespace = '`+gone+`'`)
		if rep := check(t, dir); rep.OK {
			t.Errorf("without the row of %s: got a sound record %+v, want a fault", gone, rep)
		}
	}
}

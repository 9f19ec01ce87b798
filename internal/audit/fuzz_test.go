package audit_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// execute is the step of a statement.
func execute(statement string, args ...any) store.Op {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}
}

// columnsOf are those of each table that Verify reads.
var columnsOf = []struct{ table, column string }{
	{"audit", "id"},
	{"audit", "namespace"},
	{"audit", "seq"},
	{"audit", "timestamp"},
	{"audit", "action"},
	{"audit", "phase"},
	{"audit", "request_id"},
	{"audit", "session_id"},
	{"audit", "language"},
	{"audit", "exit_code"},
	{"audit", "duration_ms"},
	{"audit", "success"},
	{"audit", "detail"},
	{"audit", "actor"},
	{"audit", "resource_usage"},
	{"audit", "metadata"},
	{"audit", "prev"},
	{"audit", "hash"},
	{"audit", "position"},
	{"audit_checkpoints", "size"},
	{"audit_checkpoints", "note"},
	{"audit_checkpoints", "edge"},
	{"audit_rotations", "size"},
	{"audit_rotations", "note"},
	{"audit_rotations", "edge"},
	{"audit_dropped", "namespace"},
	{"audit_dropped", "seq"},
	{"audit_dropped", "hash"},
	{"audit", "mac"},
}

// changed is a stored value with one bit of one byte of its text flipped.
func changed(v any, at uint16, bit uint8) any {
	flip := func(b []byte) []byte {
		if b = slices.Clone(b); len(b) > 0 {
			b[int(at)%len(b)] ^= 1 << (bit % 8)
		}
		return b
	}
	switch v := v.(type) {
	case string:
		if v == "" {
			return "x"
		}
		return string(flip([]byte(v)))
	case []byte:
		return flip(v)
	case int64:
		return v ^ 1<<(at%62)
	case float64:
		return v + 1/float64(1+at)
	}
	return int64(at) // of NULL
}

// FuzzFlip: after a change of any bit of any value of any row the record is not sound, or the
// database refuses the value.
func FuzzFlip(f *testing.F) {
	storetest.SQLite(f)
	dir := f.TempDir()
	c := &clock{}
	for day := range 3 {
		r := openSealed(f, dir, func(cfg *audit.Config) { cfg.Now = c.now })
		r.append(f, "a", 3)
		r.append(f, "b", 2)
		if day == 1 {
			c.at = c.at.AddDate(1, 0, 0)
			if n, err := r.l.Drop(f.Context(), 1); n == 0 || err != nil {
				f.Fatalf("got %d entries dropped, %v; want some", n, err)
			}
		}
		r.close(f)
	}
	alter(f, dir, ``)
	path := filepath.Join(dir, "sandboxmcp.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	head, err := os.ReadFile(audit.HeadFile(dir, path))
	if err != nil {
		f.Fatal(err)
	}
	for i := range columnsOf {
		f.Add(uint8(i), uint8(1), uint16(i), uint8(i))
		f.Add(uint8(i), uint8(0), uint16(i*7), uint8(0))
	}
	f.Fuzz(func(t *testing.T, column, row uint8, at uint16, bit uint8) {
		dir := t.TempDir()
		path := filepath.Join(dir, "sandboxmcp.db")
		if err := errors.Join(os.WriteFile(path, whole, 0o600), os.WriteFile(audit.HeadFile(dir, path), head, 0o600)); err != nil {
			t.Fatal(err)
		}
		if column == 255 { // the head
			if err := os.WriteFile(audit.HeadFile(dir, path), changed(head, at, bit).([]byte), 0o600); err != nil {
				t.Fatal(err)
			}
			if rep := check(t, dir); rep.OK {
				t.Errorf("byte %d of the head changed: got a sound record, want a fault", at)
			}
			return
		}
		where := columnsOf[int(column)%len(columnsOf)]
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		var was any
		table := where.table
		key := map[string]string{"audit": "position", "audit_checkpoints": "size", "audit_rotations": "size", "audit_dropped": "namespace"}[table]
		err = db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n)
		if err == nil && n > 0 {
			var id any
			err = db.QueryRowContext(t.Context(), `SELECT `+key+`, `+where.column+` FROM `+table+` ORDER BY `+key+` LIMIT 1 OFFSET ?`, int64(row)%n).Scan(&id, &was)
			if err == nil {
				_, err = db.ExecContext(t.Context(), `UPDATE `+table+` SET `+where.column+` = ? WHERE `+key+` = ?`, changed(was, at, bit), id)
			}
		}
		if err := errors.Join(err, db.Close()); err != nil || n == 0 {
			t.Skip(err) // such a value cannot stand there
		}
		if rep := check(t, dir, byKey); rep.OK {
			t.Errorf("%s.%s of row %d: %q became %q, got a sound record %+v, want a fault", table, where.column, row, was, changed(was, at, bit), rep)
		}
	})
}

// FuzzSecondPlace: whatever byte of the second place is changed, it is a fault;
// and no text makes Verify fail otherwise.
func FuzzSecondPlace(f *testing.F) {
	dir := f.TempDir()
	filled(f, dir)
	whole, err := os.ReadFile(filepath.Join(dir, "second"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(3), uint8(1), []byte(nil))
	f.Add(uint16(200), uint8(7), []byte("\n\n— x"))
	f.Fuzz(func(t *testing.T, at uint16, bit uint8, more []byte) {
		place := filepath.Join(t.TempDir(), "second")
		text := changed(whole, at, bit).([]byte)
		if err := os.WriteFile(place, append(text, more...), 0o600); err != nil {
			t.Fatal(err)
		}
		if rep := check(t, dir, func(e *audit.Evidence) { e.CheckpointFile = place }); rep.OK {
			t.Errorf("byte %d changed to %q: got a sound record, want a fault", at, text)
		}
	})
}

// FuzzCanonical: the canonical form of a JSON text is one, means the same, and is
// its own canonical form.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":[1,2.5e3,-0.0],"a":"\u2028\ud83d\ude00\n"}`, `1e400`, `"\ud800"`, `12345678901234567890123`, `{"a":{},"a":1}`, `[] x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		once, err := audit.Canonical(text)
		if err != nil {
			return
		}
		twice, err := audit.Canonical([]byte(once))
		if err != nil || twice != once {
			t.Fatalf("canonical form of %q: got %q, and of that %q (%v); want the same twice", text, once, twice, err)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal(text, &a), json.Unmarshal([]byte(once), &b)); err != nil {
			t.Fatalf("canonical form of %q: got %q, %v; want JSON", text, once, err)
		}
		if d := cmp.Diff(a, b); d != "" {
			t.Errorf("got %q, want what %q means:\n%s", once, text, d)
		}
	})
}

package audit_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// bytes17 is an expression for a text of 17 MiB.
func bytes17() string {
	if storetest.Postgres() {
		return `repeat('x', 17 * 1024 * 1024)`
	}
	return `replace(hex(zeroblob(17 * 512 * 1024)), '0', 'x')`
}

func blob17() string {
	if storetest.Postgres() {
		return `convert_to(` + bytes17() + `, 'UTF8')`
	}
	return `CAST(` + bytes17() + ` AS BLOB)`
}

// allocated returns how many bytes of Go's heap this process has allocated since it started.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// A writer of the database puts values of many megabytes into a row. Verify reports the row and does not read it.
func TestLargeRowsAreReportedUnread(t *testing.T) {
	for name, c := range map[string]struct {
		change, kind string
		row          int64
		reads        int64
	}{
		"an entry":          {`UPDATE audit SET detail = ` + bytes17() + ` WHERE position = 7`, "unreadable", 7, 6},
		"an indexed column": {`UPDATE audit SET action = ` + bytes17() + ` WHERE position = 7`, "unreadable", 7, 6},
		"a MAC":             {`UPDATE audit SET mac = ` + bytes17() + ` WHERE position = 30`, "unreadable", 30, 29},
		"a checkpoint":      {`UPDATE audit_checkpoints SET note = ` + bytes17() + ` WHERE size = 20`, "checkpoint", 0, 0},
		"the edge of one":   {`UPDATE audit_checkpoints SET edge = ` + blob17() + ` WHERE size = 20`, "checkpoint", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if storetest.Postgres() && name == "an indexed column" {
				t.Skip("PostgreSQL refuses such values in an index")
			}
			dir := t.TempDir()
			filled(t, dir)
			alter(t, dir, c.change)
			v, err := store.Look(t.Context(), storetest.On(store.Config{Dir: dir}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = v.Close() }()
			for range 2 { // the bound is of one call
				was := allocated()
				rep, err := audit.Verify(t.Context(), v.DB(), audit.Evidence{Open: ours.OpenNote, Signer: ours, Schema: v.Differences})
				if err != nil {
					t.Fatal(err)
				}
				if n := allocated() - was; n > 8<<20 {
					t.Errorf("the check allocated %d bytes, want no large value among them", n)
				}
				var got []sandboxmcp.AuditFault
				for _, f := range rep.Faults {
					if strings.Contains(f.Reason, "more than 16 MiB and was not read") {
						got = append(got, f)
					}
				}
				if rep.OK || len(got) != 1 || got[0].Kind != c.kind || got[0].Row != c.row || rep.Entries != c.reads {
					t.Errorf("got %d entries and %+v, want %d and one fault %s of row %d", rep.Entries, rep.Faults, c.reads, c.kind, c.row)
				}
			}
			var n int
			if err := v.DB().QueryRowContext(t.Context(), `SELECT length(`+bytes17()+`)`).Scan(&n); err != nil || n != 17<<20 {
				t.Errorf("after the check: got %d and %v, want that the bound is gone", n, err)
			}
		})
	}
}

// When the server signs, it does not read very large values into its memory. It stops signing and gives the reason.
func TestServerDoesNotSignLargeRows(t *testing.T) {
	for name, change := range map[string]string{
		"a hash":     `UPDATE audit SET hash = ` + bytes17() + ` WHERE position = (SELECT max(position) FROM audit)`,
		"a MAC":      `UPDATE audit SET mac = ` + bytes17() + ` WHERE position = (SELECT max(position) FROM audit)`,
		"checkpoint": `UPDATE audit_checkpoints SET note = ` + bytes17() + ` WHERE size = (SELECT max(size) FROM audit_checkpoints)`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			r := openSealed(t, dir)
			alter(t, dir, `SELECT 1`) // removes the triggers that would refuse the change
			was, e := allocated(), entry("a", 0)
			// The entry and the change are one transaction. The server signs the entry a second later, and only Verify
			// finds a change made after that.
			if err := r.s.Update(t.Context(), r.l.Op(&e), execute(change)); err != nil {
				t.Fatal(err)
			}
			testkit.Until(t, "the server stops signing", func() bool { return !r.l.Signing().Signed })
			if reason := r.l.Signing().Reason; len(reason) > 1000 {
				t.Errorf("the reason has %d bytes", len(reason))
			}
			r.close(t)
			if n := allocated() - was; n > 8<<20 {
				t.Errorf("the server allocated %d bytes, want no large value among them", n)
			}
			if rep := check(t, dir); rep.OK {
				t.Error("the record is called sound")
			}
		})
	}
}

// The same for statements about dropped entries.
func TestLargeStatementsAboutDroppedEntries(t *testing.T) {
	for name, change := range map[string]string{
		"a statement":       `INSERT INTO audit_rotations VALUES (1, ` + bytes17() + `, ` + blob17() + `)`,
		"the end of chains": `INSERT INTO audit_dropped VALUES ('a', 1, ` + bytes17() + `)`,
		"a namespace":       `INSERT INTO audit_dropped VALUES (` + bytes17() + `, 1, 'x')`,
	} {
		t.Run(name, func(t *testing.T) {
			if storetest.Postgres() && name == "a namespace" {
				t.Skip("PostgreSQL refuses such values in an index")
			}
			dir := t.TempDir()
			filled(t, dir)
			was := allocated()
			alter(t, dir, change)
			if rep := check(t, dir); rep.OK || rep.Entries != 30 {
				t.Errorf("got %d entries and %+v, want 30 and a fault", rep.Entries, rep.Faults)
			}
			if n := allocated() - was; n > 8<<20 {
				t.Errorf("the check allocated %d bytes, want no large value among them", n)
			}
		})
	}
}

// An entry that verify would not read is refused.
func TestLargeEntriesAreRefused(t *testing.T) {
	r := openSealed(t, t.TempDir())
	e := entry("a", 1)
	e.Detail = strings.Repeat("x", 9<<20)
	if _, err := r.l.Append(t.Context(), e); err == nil || !strings.Contains(err.Error(), "the entry has 943") {
		t.Errorf("got %v, want that it is too large", err)
	}
	r.soundly(t)
}

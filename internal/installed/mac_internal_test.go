package installed

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// between calls then after the first query.
type between struct {
	store.Querier

	then func()
}

func (b *between) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := b.Querier.QueryContext(ctx, query, args...)
	if then := b.then; then != nil {
		b.then = nil
		defer then()
	}
	return rows, err
}

// TestARemovalWhileRowsAreRead: a row that is removed between the reading of the rows and that of the record was not put back.
func TestARemovalWhileRowsAreRead(t *testing.T) {
	storetest.SQLite(t) // it reads the rows of a statement as they were when it began
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := audit.Open(t.Context(), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.WithoutCancel(t.Context())) })
	c := New(Config{Store: s, Record: l.Reader(), Key: func(purpose string) ([]byte, error) { return []byte(purpose), nil }})
	if err := c.Add(t.Context(), "one", Set{Language: sandboxmcp.Python, Digest: "x"}, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	remove := func() {
		_, err := c.Remove(t.Context(), "one", func(Set) bool { return true }, func(gone []Set) store.Op {
			return l.Op(&sandboxmcp.AuditEntry{Action: ActionRemoved, Phase: sandboxmcp.PhaseOutcome, Namespace: "one", Metadata: map[string]any{KeyRemoved: IDs(gone)}})
		})
		if err != nil {
			t.Error(err)
		}
	}
	rows, err := c.look().read(t.Context(), &between{s.DB(), remove}, c.macs, "")
	if len(rows) != 0 || err != nil {
		t.Errorf("got %+v and %v, want no row", rows, err)
	}
}

// TestOldRemovalsAreNotReadAgain: entries that are older than the rows are not read, and those that a reading has read are not
// read by the next one. An entry that would be a fault tells whether it was read.
func TestOldRemovalsAreNotReadAgain(t *testing.T) {
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: t.TempDir()}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := audit.Open(t.Context(), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.WithoutCancel(t.Context())) })
	open := func() *Table {
		return New(Config{Store: s, Record: l.Reader(), Key: func(purpose string) ([]byte, error) { return []byte(purpose), nil }})
	}
	c := open()
	if err := c.Add(t.Context(), "one", Set{Language: sandboxmcp.Python, Digest: "x"}, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	all, err := c.read(t.Context())
	if err != nil || len(all.of["one"]) != 1 {
		t.Fatalf("got %+v and %v, want one set", all, err)
	}
	say := func(id string, ago time.Duration) {
		e := &sandboxmcp.AuditEntry{Action: ActionRemoved, Phase: sandboxmcp.PhaseOutcome, Namespace: "one", Timestamp: time.Now().Add(-ago), Metadata: map[string]any{KeyRemoved: []string{id}}}
		if err := s.Update(t.Context(), l.Op(e)); err != nil {
			t.Fatal(err)
		}
	}
	id := all.of["one"][0].ID
	want := func(c *Table, n int, why string) {
		t.Helper()
		if all, err := c.read(t.Context()); err != nil || len(all.of["one"]) != n {
			t.Errorf("%s: got %+v and %v, want %d sets", why, all, err, n)
		}
	}
	say(id, 2*clockSlack)
	want(open(), 0, "an entry that seems older than the row, because the clock was set back")
	more := make([]store.Op, olderRead)
	for n := range more {
		more[n] = l.Op(&sandboxmcp.AuditEntry{Action: ActionRemoved, Phase: sandboxmcp.PhaseOutcome, Namespace: "one", Timestamp: time.Now().Add(-2 * clockSlack), Metadata: map[string]any{KeyRemoved: []string{"another"}}})
	}
	if err := s.Update(t.Context(), more...); err != nil {
		t.Fatal(err)
	}
	want(open(), 1, "an entry that is older than the row, before many others")
	want(c, 0, "a new entry, whatever its time is, for a server that knows the row")
	c = open()
	want(c, 1, "another server")
	want(c, 1, "the entry has been read")
	say("another", 0)
	want(c, 1, "an entry of another row")
	say(id, 110*time.Second) // each clock of two servers differs from that of their database by almost a minute
	want(open(), 0, "an entry within the slack")
	want(c, 0, "a new entry")
	want(c, 0, "again")
}

// TestForgedRemovalsMakeNoneForgotten: entries that no server has written make a process forget no removal.
func TestForgedRemovalsMakeNoneForgotten(t *testing.T) {
	r := &removals{ids: map[[16]byte]bool{}}
	r.add("", `{"set_ids":["set_real"]}`, true)
	many := make([]string, maxRemovals)
	for n := range many {
		many[n] = strconv.Itoa(n)
	}
	text, err := json.Marshal(map[string]any{KeyRemoved: many})
	if err != nil {
		t.Fatal(err)
	}
	r.add("", string(text), false)
	if len(r.ids) != 1 || !r.has("set_real") {
		t.Errorf("got %d ids, want the one of a server", len(r.ids))
	}
	r.add("", string(text), true)
	if len(r.ids) != maxRemovals {
		t.Errorf("got %d ids, want %d", len(r.ids), maxRemovals)
	}
}

package session_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// newServer returns the table of a server with an address, and a function that ends it as a kill does: its rows stay.
// PostgreSQL frees its lease soon after that function has returned.
func newServer(t *testing.T, url, address string) (*session.Table, func()) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Postgres: url})
	if err != nil {
		t.Fatal(err)
	}
	table := session.New(t.Context(), session.Config{Store: s, Max: 10, Address: address})
	if err = table.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	die := func() { _ = s.Close() } // with its connection the lease ends
	t.Cleanup(func() {
		_ = table.Close(context.WithoutCancel(t.Context())) // its database may be closed
		die()
	})
	return table, die
}

func begin(t *testing.T, table *session.Table, id sandboxmcp.SessionID) (*session.Session, sandboxmcp.Session, error) {
	t.Helper()
	info := sandboxmcp.Session{ID: id, Namespace: "default", Language: sandboxmcp.Python, CreatedAt: time.Now().UTC()}
	s, _, err := table.Claim(t.Context(), "", info, time.Hour, false)
	return s, info, err
}

// TestServersShareIDs: a session of another server is named with its address while that lives, and has expired
// afterwards.
func TestServersShareIDs(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	url := storetest.URL(t.TempDir())
	a, die := newServer(t, url, "10.0.0.1:1")
	b, _ := newServer(t, url, "10.0.0.2:1")
	s, info, err := begin(t, a, "shared")
	if err == nil {
		err = s.Furnish(t.Context(), &room{}, info)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	if _, err = b.Find(t.Context(), "default", "shared"); session.Elsewhere(err) != "10.0.0.1:1" {
		t.Errorf("Find: got %v, want the address of the other server", err)
	}
	if _, _, err = begin(t, b, "shared"); session.Elsewhere(err) != "10.0.0.1:1" {
		t.Errorf("Claim: got %v, want the address of the other server", err)
	}
	if _, err = b.Remove(t.Context(), "default", "shared", true); session.Elsewhere(err) != "10.0.0.1:1" {
		t.Errorf("Remove: got %v, want the address of the other server", err)
	}
	if _, err = b.Find(t.Context(), "other", "shared"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
		t.Errorf("in another namespace: got %v, want %s", err, sandboxmcp.CodeSessionNotFound)
	}
	if all, err := b.Servers(t.Context()); err != nil || !slices.Equal(all, []string{"10.0.0.1:1"}) {
		t.Errorf("got the servers %v and %v, want the other one", all, err)
	}
	die()
	testkit.Until(t, "the lease is free", func() bool {
		_, err = b.Find(t.Context(), "default", "shared")
		return session.Elsewhere(err) == ""
	})
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionExpired {
		t.Errorf("after its end: got %v, want %s", err, sandboxmcp.CodeSessionExpired)
	}
	if all, err := b.Servers(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after its end: got the servers %v and %v, want none", all, err)
	}
}

// TestOneOfTwoServersMakesAnID: of two servers that make a session of one id at once, one has it, and the other closes
// its sandbox.
func TestOneOfTwoServersMakesAnID(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	url := storetest.URL(t.TempDir())
	a, _ := newServer(t, url, "10.0.0.1:1")
	b, _ := newServer(t, url, "10.0.0.2:1")
	first, info, err := begin(t, a, "raced")
	if err != nil {
		t.Fatal(err)
	}
	second, same, err := begin(t, b, "raced")
	if err != nil {
		t.Fatal(err)
	}
	if err = first.Furnish(t.Context(), &room{}, info); err != nil {
		t.Fatal(err)
	}
	late := &room{}
	if err = second.Furnish(t.Context(), late, same); sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionBusy || late.closed.Load() != 1 {
		t.Errorf("got %v and %d closed sandboxes, want %s and 1", err, late.closed.Load(), sandboxmcp.CodeSessionBusy)
	}
	if _, err = b.Find(t.Context(), "default", "raced"); session.Elsewhere(err) != "10.0.0.1:1" {
		t.Errorf("afterwards: got %v, want the address of the other server", err)
	}
}

package installed_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/installed"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// open opens a state directory as a process of its own would. Its clock goes on with each change.
func open(t *testing.T, dir string) *installed.Table {
	t.Helper()
	return table(t, openStore(t, dir), secret, nil)
}

func openStore(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func table(t *testing.T, s *store.Store, key func(string) ([]byte, error), log *slog.Logger) *installed.Table {
	t.Helper()
	l, err := audit.Open(t.Context(), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1, 0)
	return installed.New(installed.Config{Store: s, Record: l.Reader(), Key: key, Now: func() time.Time { at = at.Add(time.Second); return at }, Logger: log})
}

func secret(purpose string) ([]byte, error) { return []byte("a secret for " + purpose), nil }

func recorded(context.Context, *sql.Tx) error { return nil }

var errUnrecorded = errors.New("the record is full")

func unrecorded(context.Context, *sql.Tx) error { return errUnrecorded }

func add(t *testing.T, on *installed.Table, ns sandboxmcp.Namespace, digest string) {
	t.Helper()
	if err := on.Add(t.Context(), ns, installed.Set{Language: "python", Digest: digest, Requested: []string{digest}}, recorded); err != nil {
		t.Fatal(err)
	}
}

func digests(t *testing.T, of *installed.Table, ns sandboxmcp.Namespace) []string {
	t.Helper()
	sets, err := of.Of(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range sets {
		all = append(all, s.Digest)
	}
	return all
}

// A set that one process adds is seen by every other one, in its namespace alone, the latest first.
func TestSetsAreSeenByEveryProcess(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	add(t, a, "one", "x")
	add(t, a, "one", "y")
	add(t, a, "two", "z")
	if diff := cmp.Diff([]string{"y", "x"}, digests(t, b, "one")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	add(t, a, "one", "x") // once more: it is the latest now
	if diff := cmp.Diff([]string{"x", "y"}, digests(t, b, "one")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	gone, err := b.Remove(t.Context(), "one", func(s installed.Set) bool { return s.Digest != "y" }, func([]installed.Set) store.Op { return recorded })
	if err != nil || len(gone) != 1 || gone[0].Digest != "x" {
		t.Errorf("got %v, %v; want x", gone, err)
	}
	if diff := cmp.Diff([]string{"y"}, digests(t, a, "one")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"z"}, digests(t, a, "two")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A change that cannot be recorded is not made.
func TestWhatCannotBeRecordedIsNotDone(t *testing.T) {
	a := open(t, t.TempDir())
	if err := a.Add(t.Context(), "one", installed.Set{Language: "node", Digest: "x"}, unrecorded); !errors.Is(err, errUnrecorded) {
		t.Errorf("got %v, want that the record is full", err)
	}
	add(t, a, "one", "y")
	_, err := a.Remove(t.Context(), "one", func(installed.Set) bool { return true }, func([]installed.Set) store.Op { return unrecorded })
	if !errors.Is(err, errUnrecorded) {
		t.Errorf("got %v, want that the record is full", err)
	}
	if diff := cmp.Diff([]string{"y"}, digests(t, a, "one")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if gone, err := a.Remove(t.Context(), "one", func(installed.Set) bool { return false }, nil); len(gone) != 0 || err != nil {
		t.Errorf("got %v, %v; want nothing", gone, err)
	}
}

func TestSetsOfANamespaceAreBounded(t *testing.T) {
	a := open(t, t.TempDir())
	for n := range installed.MaxSets {
		add(t, a, "one", strconv.Itoa(n))
	}
	err := a.Add(t.Context(), "one", installed.Set{Language: "python", Digest: "more"}, recorded)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("got %v, want invalid_argument", err)
	}
	add(t, a, "one", "0") // one that is there
	if err := a.Add(t.Context(), "one", installed.Set{Language: "node", Digest: "more"}, recorded); err != nil {
		t.Errorf("another language: got %v", err)
	}
}

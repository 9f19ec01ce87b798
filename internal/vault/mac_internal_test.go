package vault

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestReservedNamesAreNotUsed: a secret under a reserved name is not used, even if its MAC is right.
func TestReservedNamesAreNotUsed(t *testing.T) {
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: filepath.Join(t.TempDir(), "state")}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	record, err := audit.Open(t.Context(), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := Open(Config{Store: s, Audit: record})
	if err != nil {
		t.Fatal(err)
	}
	if err = v.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret("Kit-0123456789/+")}); err != nil {
		t.Fatal(err)
	}
	all, err := v.key.current(false)
	if err != nil {
		t.Fatal(err)
	}
	r := &stored{namespace: "ns", key: "BASH_ENV", created: "2026-01-02T03:04:05.000000000Z"}
	if err = r.seal(pack("ns", r.key, "/mnt/data/file"), all[0]); err != nil {
		t.Fatal(err)
	}
	if err = s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return insert(r, 14, all[0].Recipient())(ctx, tx) }); err != nil {
		t.Fatal(err)
	}
	set, err := v.Current(t.Context(), "ns")
	if err != nil || len(set.Items) != 1 || set.Items[0].Key != "A" {
		t.Errorf("got %+v, %v; want A alone", set, err)
	}
	if faults, err := v.Faults(t.Context(), s.DB()); err != nil || len(faults) != 1 {
		t.Errorf("faults: got %v, %v; want one", faults, err)
	}
}

// TestStoredSecretsKeepTheirForm: the MAC of a fixed row with a fixed key is the one of earlier releases.
func TestStoredSecretsKeepTheirForm(t *testing.T) {
	id, err := age.ParseX25519Identity("AGE-SECRET-KEY-1FNS67LCVSHKZKHDFLMZHMF470VR8JJ9PQY0GTU35RG34C0SHXGFQ8JD4UJ")
	if err != nil {
		t.Fatal(err)
	}
	key, err := rowKey(id)
	if err != nil {
		t.Fatal(err)
	}
	const want = "7d7c2b33d14603cd18e8b64a4b21a7abd7b75d8ac728547e8f4011d6aee5e55c"
	if got := key.MAC((&stored{version: 7, namespace: "ns", key: "A", sealed: []byte{1, 2}, created: "c", expiry: "e"}).columns()...); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

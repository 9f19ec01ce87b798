package vault

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// A commit whose answer is lost may have been carried out: the secrets are then sealed for
// the new key. They can be read after the rotation failed.
func TestARotationWhoseCommitIsUnknownLosesNoSecret(t *testing.T) {
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: filepath.Join(t.TempDir(), "state")}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	record, err := audit.Open(t.Context(), s, audit.Config{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	v, err := Open(Config{Store: s, Audit: record, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	c := sandboxmcp.Caller{Namespace: "ns", Actor: "tester"}
	const value = "Kit-0123456789/+"
	if err = v.Add(t.Context(), c, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value)}); err != nil {
		t.Fatal(err)
	}
	old, err := v.key.current(false)
	if err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err = v.key.replace(append([]*age.X25519Identity{id}, old...)); err != nil {
		t.Fatal(err)
	}
	if err = s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := v.reseal(ctx, tx, id)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err = v.giveUp(old, true); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Config{Store: s, Audit: record, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	set, err := again.Current(t.Context(), "ns")
	if err != nil || len(set.Items) != 1 || set.Items[0].Value.Reveal() != value {
		t.Fatalf("after the rotation: got %v; want the secret", err)
	}
	if n, err := again.Rotate(t.Context(), c); n != 1 || err != nil {
		t.Errorf("rotate again: got %d, %v; want 1", n, err)
	}
}

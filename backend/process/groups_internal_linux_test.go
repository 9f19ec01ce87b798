package process

import (
	"errors"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestFiltersFollowTheControlGroups: a jail that is built before the control groups are found has the filters of a
// machine without them if there are none. No sandbox of it is said to have their limits.
func TestFiltersFollowTheControlGroups(t *testing.T) {
	policy := func(b *Backend) string {
		t.Helper()
		t.Cleanup(func() {
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		sb, err := b.Open(t.Context(), trialSpec("groups"))
		if err != nil {
			t.Skipf("no sandbox can be built here: %v", err)
		}
		defer func() { _ = sb.Close(t.Context()) }()
		iso, err := sb.Isolation(t.Context())
		if err != nil || sb.(*sandbox).group != nil {
			t.Errorf("got group %v, %v, want none", sb.(*sandbox).group, err)
		}
		return iso.PolicySHA256
	}
	cfg := Config{MinTier: sandboxmcp.TierL2, TempDir: t.TempDir(), testOnlyNoCgroup: true}
	want := policy(New(cfg))
	late := New(cfg)
	late.mu.Lock()
	late.prepareLocked()
	found := make(chan foundGroups)
	late.finding, late.noTree = found, ""
	late.mu.Unlock()
	late.builds.Go(func() { found <- foundGroups{err: errors.New("none here")} })
	if got := policy(late); got != want {
		t.Errorf("got policy %s, want %s", got, want)
	}
	if late.noTree != "none here" {
		t.Errorf("got %q as the reason, want that of the search", late.noTree)
	}
}

// TestNothingIsFoundAfterClose: a closed backend starts no builder and makes no control groups.
func TestNothingIsFoundAfterClose(t *testing.T) {
	b := New(Config{MinTier: sandboxmcp.TierL2, TempDir: t.TempDir()})
	b.hostRoot = func() bool { return true }
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most, _ := b.resizes(); most != (ready{}) || b.prepared {
		t.Error("a closed backend has prepared itself")
		_ = b.Close(t.Context())
	}
}

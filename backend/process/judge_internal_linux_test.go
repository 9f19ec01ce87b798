package process

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// TestJudge: a jail whose trial lacks one of the required walls is refused, and
// the error names the wall.
func TestJudge(t *testing.T) {
	b := New(Config{})
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), trialSpec("judge"))
	if err != nil {
		t.Skipf("no sandbox can be built here: %v", err)
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := b.halls[0]
	if err := judge(h, iso); err != nil {
		t.Errorf("with every wall: got %v, want nil", err)
	}
	required := h.Mode().Required(h.LandlockABI())
	if len(required) < 15 {
		t.Errorf("required walls: got %d, %q; want at least 15", len(required), required)
	}
	for _, w := range required {
		less := iso
		less.Walls = slices.DeleteFunc(slices.Clone(iso.Walls), func(v string) bool { return v == w })
		if err := judge(h, less); err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("without %q: got %v, want an error that names it", w, err)
		}
	}
	_ = sb.Close(t.Context())
}

// TestBadDirectoryIsNoReasonForWeakerWalls: where the weakest tier is allowed, a
// fault of the request must not lead to it.
func TestBadDirectoryIsNoReasonForWeakerWalls(t *testing.T) {
	b := New(Config{MinTier: sandboxmcp.TierL1, TempDir: t.TempDir()})
	defer func() { _ = b.Close(t.Context()) }()
	first, err := b.Open(t.Context(), trialSpec("first"))
	if err != nil {
		t.Skipf("no sandbox can be built here: %v", err)
	}
	defer func() { _ = first.Close(t.Context()) }()
	iso, err := first.Isolation(t.Context())
	if err != nil || iso.Tier == sandboxmcp.TierL1 {
		t.Skipf("no namespaces here: %v %v", iso.Tier, err)
	}
	spec := trialSpec("bad")
	for _, dir := range []string{"/nonexistent/directory", "relative", "/dev/null", "/proc/self/fd/999"} {
		spec.Trees = backend.Trees(dir)
		if sb, err := b.Open(t.Context(), spec); err == nil {
			_ = sb.Close(t.Context())
			t.Errorf("%q: got a sandbox, want an error", dir)
		}
	}
	after, err := b.Open(t.Context(), trialSpec("after"))
	if err != nil {
		t.Fatalf("a sandbox after a bad directory: got %v, want nil", err)
	}
	defer func() { _ = after.Close(t.Context()) }()
	if got, err := after.Isolation(t.Context()); err != nil || got.Tier != iso.Tier || got.PolicySHA256 != iso.PolicySHA256 {
		t.Errorf("later sandboxes differ: %+v, %v, want %+v", got, err, iso)
	}
	for _, h := range b.halls {
		if h.Mode() == jail.ModePlain {
			t.Error("got a jail of the weakest kind, want one with namespaces")
		}
	}
}

var _ backend.Backend = (*Backend)(nil)

// lateEnd is a context that ends after its first question.
type lateEnd struct {
	context.Context

	asked atomic.Int32
}

func (c *lateEnd) Err() error {
	if c.asked.Add(1) == 1 {
		return nil
	}
	return context.Canceled
}

// TestTrialIsNobodysCall: if a caller leaves while the first sandbox of a jail is built, the
// jail and the sandboxes that others have opened in it stay usable.
func TestTrialIsNobodysCall(t *testing.T) {
	b := New(Config{})
	defer func() { _ = b.Close(t.Context()) }()
	if c := b.Capabilities(t.Context()); !c.Available {
		t.Skipf("no sandbox can be built here: %s", c.Reason)
	}
	spec := trialSpec("left")
	spec.Trees = backend.Trees(t.TempDir()) // a jail of its own
	sb, err := b.Open(&lateEnd{Context: t.Context()}, spec)
	if code := sandboxmcp.CodeOf(err); code == sandboxmcp.CodeIsolationUnavailable {
		t.Errorf("got %v; the walls are not at fault", err)
	}
	if err == nil {
		_ = sb.Close(t.Context())
	}
	if got := b.Jails(); got != 2 {
		t.Errorf("got %d jails, want both", got)
	}
}

// TestRootWithoutOtherUsersHasNoPlainSandboxes: root of a user namespace may have leased no ids. Its
// programs would run as the server's own user, so the sandbox is refused.
func TestRootWithoutOtherUsersHasNoPlainSandboxes(t *testing.T) {
	if uid, err := (&Backend{}).plainUser(); sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable || uid >= 0 {
		t.Errorf("got user %d and %v, want %s", uid, err, sandboxmcp.CodeIsolationUnavailable)
	}
}

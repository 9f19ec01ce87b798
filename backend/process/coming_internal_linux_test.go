package process

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// TestComingSandboxIsTheFirst: the script that is made while the builder works is that of the sandbox that Expect builds.
func TestComingSandboxIsTheFirst(t *testing.T) {
	b := New(Config{})
	defer func() { _ = b.Close(t.Context()) }()
	spec := trialSpec("first")
	spec.CPUTime = 90 * 1e9
	b.mu.Lock()
	b.prepareLocked()
	b.groupsLocked()
	none := b.comingLocked(jail.ModeRoot)
	b.coming = &spec
	coming := b.comingLocked(jail.ModeRoot)
	again := b.comingLocked(jail.ModeRoot)
	b.mu.Unlock()
	if none != nil || again != nil || coming == nil {
		t.Fatalf("comingLocked: got %v before Warm, %v after it and then %v, want a configuration only after Warm, and once", none, coming, again)
	}
	s, err := b.first(t.Context(), spec, nil)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = s.end() }()
	b.mu.Lock()
	tree := b.tree
	b.mu.Unlock()
	got := s.limitedConfig(tree, s.hall.Mode())
	if got.Size != coming.Size || got.Ways != coming.Ways || got.WantProc != coming.WantProc || got.Terminal != coming.Terminal || got.Apart != coming.Apart {
		t.Errorf("the sandbox is of %+v, expected was %+v", got, *coming)
	}
}

package artifact

import (
	"context"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

func TestFewResultsAreLoadedAtATime(t *testing.T) {
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: t.TempDir()}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	k := NewKeeper(s, Config{})
	for range maxLoading {
		k.loading <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Load(ctx, "default", "r1", true); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("beside others: got %v, want cancelled", err)
	}
	<-k.loading
	if _, err := k.Load(t.Context(), "default", "r1", true); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("after another: got %v, want request_not_found", err)
	}
	if len(k.loading) != maxLoading-1 {
		t.Errorf("%d results are being loaded, want %d", len(k.loading), maxLoading-1)
	}
}

package session_test

import (
	"context"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestADatabaseThatDoesNotAnswer: whether another server has a session cannot be known then.
func TestADatabaseThatDoesNotAnswer(t *testing.T) {
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: t.TempDir()}))
	if err != nil {
		t.Fatal(err)
	}
	table := session.New(t.Context(), session.Config{Store: s, Max: 1})
	if err := s.DB().Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Find(t.Context(), "ns", "unknown"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("got %v, want backend_unavailable", err)
	}
	_ = table.Close(context.WithoutCancel(t.Context()))
	_ = s.Close()
}

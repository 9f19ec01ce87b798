package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

func TestStopEndsOnlyAServerThatAllowsIt(t *testing.T) {
	dir := t.TempDir()
	stopped := 0
	s := serve(t, api.Config{StateDir: dir, Service: &service{}, Stop: func() { stopped++ }})
	if err := peers(t, dir, 1)[0].Stop(t.Context()); err != nil || stopped != 1 {
		t.Errorf("got %v and %d stops, want 1", err, stopped)
	}
	_ = s.Close()
	serve(t, api.Config{StateDir: dir, Service: &service{}})
	if err := peers(t, dir, 1)[0].Stop(t.Context()); sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied {
		t.Errorf("server of an agent: got %v, want %s", err, sandboxmcp.CodeAccessDenied)
	}
}

func TestStopNeedsTheOwner(t *testing.T) {
	stopped := false
	h := api.NewHandler(t.Context(), api.Config{Service: &service{}, Stop: func() { stopped = true }}, sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"team"}})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/stop", nil))
	if w.Code != http.StatusForbidden || stopped {
		t.Errorf("got %d and stopped=%v, want %d", w.Code, stopped, http.StatusForbidden)
	}
}

// TestStopIsAnsweredFirst: the answer is on its way before the server closes its connections.
func TestStopIsAnsweredFirst(t *testing.T) {
	w := httptest.NewRecorder()
	sent := false
	h := api.NewHandler(t.Context(), api.Config{Service: &service{}, Stop: func() { sent = w.Flushed }}, sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"default"}, Every: true})
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/stop", nil))
	if w.Code != http.StatusOK || !sent {
		t.Errorf("got %d and sent=%v, want %d and the answer sent", w.Code, sent, http.StatusOK)
	}
}

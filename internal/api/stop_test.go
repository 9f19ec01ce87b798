package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

func TestStopEndsOnlyAServerThatAllowsIt(t *testing.T) {
	dir := t.TempDir()
	stopped := make(chan struct{})
	s := serve(t, api.Config{StateDir: dir, Service: &service{}, Stop: func() { close(stopped) }})
	if err := peers(t, dir, 1)[0].Stop(t.Context()); err != nil {
		t.Fatalf("got %v, want no error", err)
	}
	<-stopped // the answer comes first
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

// TestStopIsAnsweredFirst: a server that closes its connections in the moment that it is stopped
// has sent the whole answer.
func TestStopIsAnsweredFirst(t *testing.T) {
	var srv *httptest.Server
	h := api.NewHandler(t.Context(), api.Config{Service: &service{}, Stop: func() { _ = srv.Config.Close() }}, sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"default"}, Every: true})
	srv = httptest.NewServer(h)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/stop", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !json.Valid(body) {
		t.Errorf("got %d with %q, %v, want %d and a whole answer", resp.StatusCode, body, err, http.StatusOK)
	}
}

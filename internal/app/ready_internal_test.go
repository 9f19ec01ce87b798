package app

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// silent is an engine that can run programs and whose database does not answer.
type silent struct{ idle }

func (silent) Runtimes(context.Context) (sandboxmcp.Runtimes, error) {
	return sandboxmcp.Runtimes{Backends: []sandboxmcp.BackendInfo{{Name: "process", Available: true}}}, nil
}

func (silent) Answers(context.Context) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "it does not answer")
}

// TestReadinessAsksTheDatabaseOfEveryEngine: a server with a silent database is not ready, also if it passes calls on to other
// servers, its callers choose no backend, or its results have links.
func TestReadinessAsksTheDatabaseOfEveryEngine(t *testing.T) {
	for name, e := range map[string]Engine{"own": silent{}, "replicas": newReplicas(silent{}, nil), "confined": confined{silent{}, "docker"}} {
		for _, links := range []func(sandboxmcp.Namespace, string, string, int64) string{nil, func(sandboxmcp.Namespace, string, string, int64) string { return "" }} {
			h := api.HTTP(t.Context(), api.HTTPConfig{Service: e, Logger: slog.New(slog.DiscardHandler), Link: links})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
			if w.Code != http.StatusServiceUnavailable {
				t.Errorf("%s, with links %v: got %d %s, want 503", name, links != nil, w.Code, w.Body)
			}
		}
	}
}

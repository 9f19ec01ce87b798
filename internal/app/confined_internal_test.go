package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// runner is an engine whose runs print the backend that they were asked for.
type runner struct{ idle }

func (runner) Execute(_ context.Context, _ sandboxmcp.Caller, r sandboxmcp.Request) (sandboxmcp.Result, error) {
	return sandboxmcp.Result{RequestID: "r", Status: sandboxmcp.StatusCompleted, Stdout: "ran on " + r.Backend}, nil
}

func (runner) Start(_ context.Context, _ sandboxmcp.Caller, r sandboxmcp.Request) (sandboxmcp.Result, error) {
	return sandboxmcp.Result{RequestID: "r", Status: sandboxmcp.StatusRunning, Stdout: "ran on " + r.Backend}, nil
}

func (runner) CreateSession(_ context.Context, _ sandboxmcp.Caller, s sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	return sandboxmcp.Session{ID: "s", Backend: s.Backend}, nil
}

// TestAttackCallersDoNotLeaveTheOperatorsContainers: if the operator has chosen containers or pods, a caller's code
// never runs in a sandbox of the server's own kernel.
func TestAttackCallersDoNotLeaveTheOperatorsContainers(t *testing.T) {
	for _, c := range []struct {
		chosen, asked string
		refused       bool
	}{
		{"docker", "process", true},
		{"docker", "docker", false},
		{"docker", "", false},
		{"kube", "process", true},
		{"kube", "docker", true},
		{"kube", "", false},
		{"process", "docker", false},
		{"process", "process", false},
		{"process", "", false},
	} {
		cfg, err := config.Load(config.Sources{Env: []string{"HOME=" + t.TempDir(), "SANDBOXMCP_BACKEND=" + c.chosen, "SANDBOXMCP_API_KEYS=one"}})
		if err != nil {
			t.Fatal(err)
		}
		d := front{engine: runner{}, cfg: cfg, logger: slog.New(slog.DiscardHandler)}
		a := New(nil, nil, io.Discard, io.Discard)
		if mcp := a.serverConfig(t.Context(), d, &fileDoor{}).Engine; mcp != d.forCallers() {
			t.Errorf("%s: MCP uses %T, want the engine for callers", c.chosen, mcp)
		}
		e := d.forCallers()
		calls := map[string]error{}
		_, calls["Execute"] = e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Backend: c.asked})
		_, calls["Start"] = e.Start(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Backend: c.asked})
		_, calls["CreateSession"] = e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{Backend: c.asked})
		for name, err := range calls {
			if got := sandboxmcp.CodeOf(err) == sandboxmcp.CodeAccessDenied; got != c.refused || err != nil && !got {
				t.Errorf("%s on %s asked for %q: got %v, want it refused: %v", name, c.chosen, c.asked, err, c.refused)
			}
		}
		if status, text := posted(t, a, d, c.asked); (status == http.StatusForbidden) != c.refused || status != http.StatusOK && !c.refused {
			t.Errorf("REST on %s asked for %q: got %d %s, want it refused: %v", c.chosen, c.asked, status, text, c.refused)
		}
	}
}

// posted returns the answer to POST /execute that asks for a backend.
func posted(t *testing.T, a *App, d front, backend string) (status int, text string) {
	t.Helper()
	conf, metadata, err := a.doorConfig(d, HTTPOptions{}, "http://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	routes, _ := a.routes(t.Context(), d, server.NewLinks("default", 0), metadata)
	s := httptest.NewServer(door.New(conf, routes))
	defer s.Close()
	body := `{"code":"print(1)"}`
	if backend != "" {
		body = `{"code":"print(1)","backend":"` + backend + `"}`
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/execute", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", "one")
	r.Header.Set("Content-Type", "application/json")
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(all)
}

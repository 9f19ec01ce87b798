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

// idle is an engine that does nothing.
type idle struct{ oneFile }

func (idle) SetLimits(context.Context, sandboxmcp.Caller, sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	return sandboxmcp.LimitsChanged{Current: sandboxmcp.DefaultLimits()}, nil
}

func (idle) Answers(context.Context) error { return nil }

func (idle) Packages(context.Context) ([]string, error) { return nil, nil }

func (idle) Sessions(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Session, error) {
	return []sandboxmcp.Session{{ID: "s", Namespace: c.Namespace}}, nil
}

func (idle) Runtimes(context.Context) (sandboxmcp.Runtimes, error) {
	return sandboxmcp.Runtimes{Backends: []sandboxmcp.BackendInfo{{Name: "process", Available: true}}}, nil
}

// TestRESTStandsBehindTheDoor: a route answers in the namespace of the key and to nobody without
// one. The checks of health need none. The server of the five tools has no REST.
func TestRESTStandsBehindTheDoor(t *testing.T) {
	cfg, err := config.Load(config.Sources{Env: []string{"HOME=" + t.TempDir(), "SANDBOXMCP_API_KEYS=one=team|other,two=*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, key, tenant string
		five              bool
		status            int
		text              string
	}{
		{"/sessions", "", "", false, 401, "unauthenticated"},
		{"/sessions", "wrong", "", false, 401, "unauthenticated"},
		{"/sessions", "one", "", false, 200, `"namespace":"team"`},
		{"/sessions", "one", "other", false, 200, `"namespace":"other"`},
		{"/sessions", "one", "default", false, 403, "access_denied"},
		{"/sessions", "one", "*", false, 403, "access_denied"},
		{"/sessions?namespace=other", "one", "", false, 403, "access_denied"},
		{"/sessions", "two", "", false, 200, `"namespace":"*"`},
		{"/sessions", "two", "any", false, 200, `"namespace":"any"`},
		{"/v1/sessions", "two", "", false, 404, "not_found"},
		{"/no/such/route", "one", "", false, 404, "openapi.json"},
		{"/no/such/route", "", "", false, 401, "unauthenticated"},
		{"/openapi.json", "one", "", false, 200, `"openapi"`},
		{"/healthz", "", "", false, 200, "ok"},
		{"/readyz", "", "", false, 200, "ok"},
		{"/files/s/a.txt", "one", "", false, 200, "text"},
		{"/sessions", "one", "", true, 404, "not_found"},
		{"/healthz", "", "", true, 200, "ok"},
	} {
		a := New(nil, nil, io.Discard, io.Discard)
		d := front{engine: idle{}, cfg: cfg, logger: slog.New(slog.DiscardHandler), five: c.five}
		conf, metadata, err := a.doorConfig(d, HTTPOptions{Five: c.five}, "http://127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		routes, _ := a.routes(ctx, d, server.NewLinks("default", 0), metadata)
		s := httptest.NewServer(door.New(conf, routes))
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.key != "" {
			r.Header.Set("X-API-Key", c.key)
		}
		if c.tenant != "" {
			r.Header.Set("X-Tenant-Id", c.tenant)
		}
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != c.status || !strings.Contains(string(text), c.text) {
			t.Errorf("%s with key %q, tenant %q, five %v: got %d %s %v, want %d with %s", c.path, c.key, c.tenant, c.five, res.StatusCode, text, err, c.status, c.text)
		}
		_ = res.Body.Close()
		s.Close()
		cancel()
	}
}

package app

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func settings(t *testing.T, env ...string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Sources{Env: append(env, "HOME="+t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestExposure: without keys the server binds this machine's own addresses only.
func TestExposure(t *testing.T) {
	for _, c := range []struct {
		env []string
		o   HTTPOptions
		ok  bool
	}{
		{nil, HTTPOptions{}, true},
		{[]string{"SANDBOXMCP_API_HOST=localhost"}, HTTPOptions{}, true},
		{[]string{"SANDBOXMCP_API_HOST=::1"}, HTTPOptions{NoAuth: true}, true},
		{[]string{"SANDBOXMCP_API_HOST=0.0.0.0"}, HTTPOptions{}, false},
		{[]string{"SANDBOXMCP_API_HOST=::"}, HTTPOptions{NoAuth: true}, false},
		{[]string{"SANDBOX_HTTP_HOST=0.0.0.0"}, HTTPOptions{Five: true, NoAuth: true}, false},
		{[]string{"SANDBOXMCP_API_HOST=::ffff:192.0.2.1"}, HTTPOptions{}, false},
		{[]string{"SANDBOXMCP_API_HOST=0.0.0.0", "SANDBOXMCP_API_KEYS=k"}, HTTPOptions{}, true},
		{[]string{"SANDBOXMCP_API_HOST=0.0.0.0", "SANDBOXMCP_OAUTH_ISSUER=https://login.example"}, HTTPOptions{}, true},
		{[]string{"SANDBOXMCP_OAUTH_ISSUER=http://login.example"}, HTTPOptions{}, false},
		{[]string{"SANDBOXMCP_OAUTH_ISSUER=https://login.example"}, HTTPOptions{NoAuth: true}, false},
		{[]string{"SANDBOXMCP_OAUTH_ISSUER=https://login.example"}, HTTPOptions{Unix: "s"}, false},
		{[]string{"SANDBOXMCP_API_KEYS=k"}, HTTPOptions{NoAuth: true}, false},
	} {
		if err := checkExposure(t.Context(), settings(t, c.env...), c.o); (err == nil) != c.ok {
			t.Errorf("%v %+v: got %v, want accepted %v", c.env, c.o, err, c.ok)
		}
	}
}

// TestOnlyHealthAndSignedLinksAreOpen lists what needs no key.
func TestOnlyHealthAndSignedLinksAreOpen(t *testing.T) {
	for ask, want := range map[string]bool{
		"GET /healthz": true, "HEAD /readyz": true, "GET /.well-known/oauth-protected-resource/mcp": true, "GET /files/a/b?sig=x": true,
		"POST /healthz": false, "GET /files/a/b": false, "GET /mcp": false, "GET /mcp?sig=x": false, "GET /sse": false, "GET /metrics": false,
		"GET /healthz/x": false, "GET /": false, "GET /x/.well-known/": false, "GET /events": false, "DELETE /files/a/b?sig=x": false,
	} {
		method, target, _ := strings.Cut(ask, " ")
		if got := needsNoKey(httptest.NewRequestWithContext(t.Context(), method, target, nil)); got != want {
			t.Errorf("%s: got open %v, want %v", ask, got, want)
		}
	}
}

func TestPlacesOfAServer(t *testing.T) {
	for _, c := range []struct{ unix, base, path, want string }{
		{"", "http://127.0.0.1:8080", "/mcp", "http://127.0.0.1:8080/mcp"},
		{"", "http://127.0.0.1:8080", "", "http://127.0.0.1:8080"},
		{"/run/s", "", "/mcp", "/mcp of the unix socket /run/s"},
		{"/run/s", "", "", "/ of the unix socket /run/s"},
	} {
		if got := (HTTPOptions{Unix: c.unix}).place(c.base, c.path); got != c.want {
			t.Errorf("%+v: got %s, want %s", c, got, c.want)
		}
	}
}

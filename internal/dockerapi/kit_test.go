package dockerapi

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// engine serves the API on a unix socket, and counts its connections.
type engine struct {
	handler http.HandlerFunc
	version string // the newest of the API; empty: not told

	mu    sync.Mutex
	pings int
	open  int
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	ping := r.URL.Path == "/_ping"
	if e.version != "" {
		w.Header().Set("Api-Version", e.version)
	}
	if ping {
		e.pings++
	}
	e.mu.Unlock()
	if ping {
		_, _ = io.WriteString(w, "OK")
		return
	}
	e.handler(w, r)
}

// change sets the newest version of the API.
func (e *engine) change(version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version = version
}

// counts returns how often the engine was asked for its version, and how many connections are open.
func (e *engine) counts() (pings, open int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pings, e.open
}

func (e *engine) state(_ net.Conn, s http.ConnState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch s {
	case http.StateNew:
		e.open++
	case http.StateClosed, http.StateHijacked:
		e.open--
	default:
	}
}

// socket returns the path of a socket that does not exist.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") //nolint:usetesting // sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// listen listens on a socket.
func listen(t *testing.T) (l net.Listener, host string) {
	t.Helper()
	path := socket(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, "unix://" + path
}

// serve starts the engine and returns a client of it.
func (e *engine) serve(t *testing.T) *Client {
	t.Helper()
	l, host := listen(t)
	s := httptest.NewUnstartedServer(e)
	_ = s.Listener.Close()
	s.Listener, s.Config.ConnState = l, e.state
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return client(t, Config{Host: host})
}

// answering returns a client of an engine that answers all calls with a status and a text.
func answering(t *testing.T, status int, text string) *Client {
	t.Helper()
	return (&engine{handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}}).serve(t)
}

func client(t *testing.T, c Config) *Client {
	t.Helper()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

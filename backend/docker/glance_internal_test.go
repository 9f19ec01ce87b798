package docker

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// TestAnIdleBackendSaysWhetherAnEngineAnswers: also if the socket is not there, is no socket, is not an
// engine's or says nothing.
func TestAnIdleBackendSaysWhetherAnEngineAnswers(t *testing.T) {
	dir, err := os.MkdirTemp("", "glance") //nolint:usetesting // sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listen := func(name string, answer http.HandlerFunc) {
		var c net.ListenConfig
		l, err := c.Listen(t.Context(), "unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
	}
	pings := make(chan string, 1)
	listen("engine", func(w http.ResponseWriter, r *http.Request) {
		pings <- r.Method + " " + r.URL.Path
		w.WriteHeader(http.StatusOK)
	})
	listen("other", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	listen("silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, answers := range map[string]bool{"engine": true, "other": false, "silent": false, "file": false, "missing": false} {
		host := "unix://" + filepath.Join(dir, name)
		b := New(Config{Process: process.Config{TempDir: t.TempDir()}, Host: host, Idle: true})
		want := "no engine answers at " + host
		if answers {
			want = "an engine answers at " + host + "; no request has used it yet"
		}
		if got := b.Capabilities(t.Context()); got.Available || got.Reason != want {
			t.Errorf("%s: got available %t, %q, want false, %q", name, got.Available, got.Reason, want)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if got := <-pings; got != "GET /_ping" {
		t.Errorf("the engine was asked %q, want GET /_ping", got)
	}
}

package egress_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// TestAnswer: the proxy's port leads to the handler, every other socket is closed, and Close ends
// requests that are served.
func TestAnswer(t *testing.T) {
	listen := func() net.Listener {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	udp, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &backend.Network{DNS: []net.PacketConn{udp}, DNSTCP: []net.Listener{listen()}, Proxy: listen(), TCP: map[int]net.Listener{80: listen()}, Effort: backend.NewEffort()}
	entered, ended := make(chan struct{}), make(chan error, 1)
	a := egress.Answer(t.Context(), n, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			close(entered)
			<-r.Context().Done()
			ended <- r.Context().Err()
			return
		}
		_, _ = io.WriteString(w, "answered "+r.URL.Path)
	}), slog.New(slog.DiscardHandler))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Proxy.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return string(text), err
	}
	if got, err := get("/simple/six/"); got != "answered /simple/six/" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, l := range []net.Listener{n.DNSTCP[0], n.TCP[80]} {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a listener beside the proxy's: got %v, want that it is closed", err)
		}
	}
	if _, _, err := udp.ReadFrom(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the resolver: got %v, want that it is closed", err)
	}
	go func() { _, _ = get("/waits") }()
	<-entered
	if err := a.Close(); err != nil {
		t.Errorf("close: got %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a request that is served: got %v, want that its context ends", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("close again: got %v", err)
	}
	if _, err := get("/"); err == nil {
		t.Error("got an answer after Close")
	}
}

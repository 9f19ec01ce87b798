package dockerapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// upgrades answers an attach with a stream that returns its lines. It reports the request, and the end of the stream.
func upgrades(t *testing.T, got chan<- string, ended chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.URL.String() + " " + r.Header.Get("Connection") + " " + r.Header.Get("Upgrade")
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer close(ended)
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nfirst\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "got "+line)
		}
	}
}

// TestStreamOutlivesItsContext: the stream of a container has what the engine sent with its answer, works after the
// end of the context, and ends when it is closed.
func TestStreamOutlivesItsContext(t *testing.T) {
	got, ended := make(chan string, 1), make(chan struct{})
	a := (&engine{handler: upgrades(t, got, ended)}).serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := a.ContainerAttach(ctx, "c1")
	if err != nil {
		t.Fatal(err)
	}
	if line := <-got; line != "POST /v1.56/containers/c1/attach?stderr=1&stdin=1&stdout=1&stream=1 Upgrade tcp" {
		t.Errorf("got %s, want an attach with an upgrade", line)
	}
	cancel()
	talk(t, s)
	select {
	case <-ended:
		t.Error("the stream has ended, want that it lasts until Close")
	default:
	}
	if err = s.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	if _, err = s.ReadByte(); err == nil {
		t.Error("a stream that is closed was read")
	}
}

// talk checks that the other end of a stream answers.
func talk(t *testing.T, s *Stream) {
	t.Helper()
	for _, want := range []string{"first\n", "got second\n", "got third\n"} {
		if line, err := s.ReadString('\n'); err != nil || line != want {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
		next := map[string]string{"first\n": "second\n", "got second\n": "third\n"}[want]
		if _, err := io.WriteString(s, next); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAttachEndsWithItsContext: ctx bounds an attach that the engine does not answer.
func TestAttachEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := (&engine{handler: func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }}).serve(t)
	if _, err := a.ContainerAttach(ctx, "c1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was cancelled", err)
	}
}

// TestEventsEndWithTheirContext: Next returns at the end of the context, and after Close.
func TestEventsEndWithTheirContext(t *testing.T) {
	for name, closes := range map[string]bool{"context": false, "Close": true} {
		ended := make(chan struct{})
		a := (&engine{handler: func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			_, _ = io.WriteString(w, "{}\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}}).serve(t)
		ctx, cancel := context.WithCancel(t.Context())
		events, err := a.Events(ctx, time.Time{}, time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err = events.Next(); err != nil {
			t.Errorf("%s: got %v, want an event", name, err)
		}
		if closes {
			events.Close()
		} else {
			cancel()
		}
		if err = events.Next(); err == nil {
			t.Errorf("%s: got an event, want the end", name)
		}
		<-ended
		cancel()
		events.Close()
	}
}

// count counts events until their end.
func count(e *Events, err error) (n int, _ error) {
	if err != nil {
		return 0, err
	}
	defer e.Close()
	for e.Next() == nil {
		n++
	}
	return n, nil
}

// TestTLS: calls and streams work over TLS. The client refuses an engine whose certificate another authority has made,
// and one that refuses its own is not reached.
func TestTLS(t *testing.T) {
	certs, config := testkit.Certificates(t)
	others, _ := testkit.Certificates(t)
	got, ended := make(chan string, 1), make(chan struct{})
	s := httptest.NewUnstartedServer(&engine{handler: upgrades(t, got, ended)})
	s.TLS = config
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	host := "tcp://" + strings.TrimPrefix(s.URL, "https://")

	stream, err := client(t, Config{Host: host, Certs: certs}).ContainerAttach(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	<-got
	talk(t, stream)
	_ = stream.Close()
	<-ended

	err = client(t, Config{Host: host, Certs: others}).Ping(t.Context())
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok || !IsUnreachable(err) {
		t.Errorf("another authority: got %v, want that the certificate is not valid", err)
	}
	stranger := t.TempDir() // knows the engine, which does not know it
	for name, from := range map[string]string{"ca.pem": certs, "cert.pem": others, "key.pem": others} {
		if err = os.Link(filepath.Join(from, name), filepath.Join(stranger, name)); err != nil {
			t.Fatal(err)
		}
	}
	err = client(t, Config{Host: host, Certs: stranger}).Ping(t.Context())
	if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "remote error" || !IsUnreachable(err) {
		t.Errorf("a stranger: got %v, want an alert of the engine", err)
	}
	if err = client(t, Config{Host: host}).Ping(t.Context()); err == nil {
		t.Error("no TLS: the engine was reached")
	}
}

// TestCertificatesThatCannotBeUsed: New fails if a file is missing or has no certificate.
func TestCertificatesThatCannotBeUsed(t *testing.T) {
	for _, name := range []string{"ca.pem", "cert.pem", "key.pem"} {
		for what, change := range map[string]func(string) error{
			"missing": os.Remove,
			"empty":   func(path string) error { return os.Truncate(path, 0) },
		} {
			certs, _ := testkit.Certificates(t)
			if err := change(filepath.Join(certs, name)); err != nil {
				t.Fatal(err)
			}
			if _, err := New(Config{Host: "tcp://127.0.0.1:1", Certs: certs}); err == nil {
				t.Errorf("%s %s: got a client, want an error", name, what)
			}
		}
	}
}

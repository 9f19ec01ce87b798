package api_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// remoteTLS returns a TLS configuration that servers and clients share.
func remoteTLS(t *testing.T) *tls.Config {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
	}
}

// listenRemote serves the API for other servers until the test ends. It returns the address, and the TLS configuration for
// clients.
func listenRemote(t *testing.T, s sandboxmcp.Service) (at string, secure *tls.Config) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, secure = free.Addr().String(), remoteTLS(t)
	if err = free.Close(); err != nil {
		t.Fatal(err)
	}
	stop, err := api.ListenRemote(t.Context(), api.RemoteConfig{Address: at, TLS: secure, Service: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return at, secure
}

// TestSilentConnectionsOfStrangersAreBounded: any client that reaches the port for other servers can connect to it.
// Its idle connections must not use up the descriptors of this server, or keep other servers from connecting.
func TestSilentConnectionsOfStrangersAreBounded(t *testing.T) {
	const strangers, most = 1100, 1024
	at, secure := listenRemote(t, &service{})
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var silent []net.Conn
	for range strangers {
		c, err := from.DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Skipf("this machine cannot open so many connections: %v", err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for i, c := range silent[:strangers-most] {
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("got %v from connection %d of %d, want it closed in favor of newer ones", err, i, strangers)
		}
	}
	c := api.Remote(at, secure)
	defer c.Close()
	if _, err := c.Hello(t.Context()); err != nil {
		t.Errorf("got %v from the server with %d silent connections, want an answer", err, strangers)
	}
}

// TestOtherServersNameTheHolder: a call that another server passes on names the holder of its caller. So a caller with
// several namespaces counts as one here, too.
func TestOtherServersNameTheHolder(t *testing.T) {
	s := &service{}
	at, secure := listenRemote(t, s)
	c := api.Remote(at, secure)
	defer c.Close()
	for _, who := range []sandboxmcp.Caller{{Namespace: "team", Actor: "http key 1", Holder: "http key 1"}, {Namespace: "team", Actor: "http key 2"}} {
		if _, err := c.Execute(t.Context(), who, sandboxmcp.Request{Code: "1"}); err != nil {
			t.Fatal(err)
		}
		if calls := s.take(); len(calls) != 1 || calls[0].caller != who {
			t.Errorf("got %+v, want a call of %+v", calls, who)
		}
	}
}

// TestSilentServerIsUnreached: if a server accepts connections and never answers the TLS handshake, the client reports
// that the call did not reach it.
func TestSilentServerIsUnreached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the kernel completes connections, although the test accepts none
	c := api.RemoteWithin(l.Addr().String(), remoteTLS(t), 50*time.Millisecond)
	defer c.Close()
	if _, err = c.Execute(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.Request{Code: "1"}); !api.Unreached(err) {
		t.Errorf("got %v, want that the server was not reached", err)
	}
}

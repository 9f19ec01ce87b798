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

// TestSilentConnectionsOfStrangersAreBounded: anybody who reaches the port for other servers can
// connect to it, and keeps neither descriptors nor other servers from this one.
func TestSilentConnectionsOfStrangersAreBounded(t *testing.T) {
	const strangers, most = 1100, 1024
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	if err = free.Close(); err != nil {
		t.Fatal(err)
	}
	secure := remoteTLS(t)
	stop, err := api.ListenRemote(t.Context(), api.RemoteConfig{Address: at, TLS: secure, Service: &service{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
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

// TestOtherServersNameTheHolder: a caller with several namespaces has no more of this server through another one.
func TestOtherServersNameTheHolder(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	if err = free.Close(); err != nil {
		t.Fatal(err)
	}
	secure, s := remoteTLS(t), &service{}
	stop, err := api.ListenRemote(t.Context(), api.RemoteConfig{Address: at, TLS: secure, Service: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c := api.Remote(at, secure)
	defer c.Close()
	for _, who := range []sandboxmcp.Caller{{Namespace: "team", Actor: "http key 1", Holder: "http key 1"}, {Namespace: "team", Actor: "http key 2"}} {
		if _, err = c.Execute(t.Context(), who, sandboxmcp.Request{Code: "1"}); err != nil {
			t.Fatal(err)
		}
		if calls := s.take(); len(calls) != 1 || calls[0].caller != who {
			t.Errorf("got %+v, want a call of %+v", calls, who)
		}
	}
}

// TestSilentServerIsUnreached: a server that accepts connections and says nothing has got no call.
func TestSilentServerIsUnreached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the kernel accepts for it
	c := api.RemoteWithin(l.Addr().String(), remoteTLS(t), 50*time.Millisecond)
	defer c.Close()
	if _, err = c.Execute(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.Request{Code: "1"}); !api.Unreached(err) {
		t.Errorf("got %v, want that the server was not reached", err)
	}
}

package sign_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

func peerTLS(t *testing.T, dir string) *tls.Config {
	t.Helper()
	k, err := sign.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := k.PeerTLS()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shake connects a client to a server, and returns the error of each.
func shake(client, server *tls.Config) (ofClient, ofServer error) {
	c, s := net.Pipe()
	done := make(chan error, 1)
	go func() {
		conn := tls.Server(s, server)
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Write([]byte("x"))
		}
		_ = s.Close()
		done <- err
	}()
	conn := tls.Client(c, client)
	err := conn.Handshake()
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 a client learns only now that it was refused
	}
	_ = c.Close()
	return err, <-done
}

// TestPeersHaveTheSameKey: only servers with the same signing key connect to each other.
func TestPeersHaveTheSameKey(t *testing.T) {
	dir := t.TempDir()
	if c, s := shake(peerTLS(t, dir), peerTLS(t, dir)); c != nil || s != nil {
		t.Errorf("with the same key: got %v and %v, want a connection", c, s)
	}
	other := peerTLS(t, t.TempDir())
	if c, _ := shake(other, peerTLS(t, dir)); c == nil {
		t.Error("a client with another key: got a connection, want none")
	}
	// Each side refuses a wrong key, even if the other side accepts every key.
	blind := other.Clone()
	blind.VerifyConnection = nil
	if _, s := shake(blind, peerTLS(t, dir)); s == nil {
		t.Error("a client with another key that accepts every server: got a connection, want none")
	}
	if c, _ := shake(peerTLS(t, dir), blind); c == nil {
		t.Error("a server with another key that accepts every client: got a connection, want none")
	}
	if _, s := shake(&tls.Config{InsecureSkipVerify: true}, peerTLS(t, dir)); s == nil {
		t.Error("a client without a key: got a connection, want none")
	}
}

package api

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
)

// TestIdleConnectionsOfThisMachineAreBounded: for a further connection, the server closes an idle one. A program of its user that has no proof
// could otherwise take all of its descriptors.
func TestIdleConnectionsOfThisMachineAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	u, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l := local(u, slog.New(slog.DiscardHandler), 2)
	defer func() { _ = l.Close() }()
	var mine, theirs []net.Conn
	for range 3 {
		c, failed := net.Dial("unix", path)
		if failed != nil {
			t.Fatal(failed)
		}
		defer func() { _ = c.Close() }()
		a, failed := l.Accept()
		if failed != nil {
			t.Fatal(failed)
		}
		defer func() { _ = a.Close() }()
		mine, theirs = append(mine, c), append(theirs, a)
	}
	if n, failed := mine[0].Read(make([]byte, 1)); !errors.Is(failed, io.EOF) {
		t.Errorf("the idlest connection: got %d bytes, %v, want that it is closed", n, failed)
	}
	for i, c := range theirs[1:] {
		if _, failed := c.Write([]byte("x")); failed != nil {
			t.Errorf("connection %d: %v", i+1, failed)
		}
	}
}

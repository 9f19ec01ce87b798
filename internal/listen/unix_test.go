package listen_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/listen"
)

// TestUnixSocket: only its owner can connect, a dead server's socket is replaced, a live one's
// and any other file are not, and nothing is left.
func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := listen.Unix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v and %v, want 0600", st.Mode(), err)
	}
	if other, err := listen.Unix(t.Context(), path); err == nil {
		_ = other.Close()
		t.Error("got the socket of a live server replaced, want an error")
	}
	if err = l.Close(); err != nil {
		t.Error(err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	if l, err = listen.Unix(t.Context(), path); err != nil {
		t.Fatalf("the socket of a dead server: got %v, want it replaced", err)
	}
	c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	_ = l.Close()
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("got %v and %v at the end, want an empty directory", all, err)
	}
	if err = os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = listen.Unix(t.Context(), path); err == nil {
		_ = l.Close()
		t.Error("got a file replaced, want an error")
	}
}

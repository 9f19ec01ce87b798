package listen

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
)

// Unix listens on a unix socket at path, to which only the server's user can connect. It
// replaces a socket on which no server listens, and nothing else. The socket is removed when
// the listener is closed.
func Unix(ctx context.Context, path string) (net.Listener, error) {
	refused := func(err error) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "cannot listen on the unix socket %s", sandboxmcp.Quote(path)).
			WithHint("choose another path, of less than 100 bytes, in a directory of your own").WithCause(err)
	}
	if st, err := os.Lstat(path); err == nil {
		if st.Mode().Type() != fs.ModeSocket {
			return nil, refused(fs.ErrExist)
		}
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, refused(syscall.EADDRINUSE)
		}
		if err = os.Remove(path); err != nil {
			return nil, refused(err)
		}
	}
	// The socket gets its name when only its owner can connect.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, refused(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	hidden := filepath.Join(dir, "s")
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", hidden)
	if err != nil {
		return nil, refused(err)
	}
	u, ok := l.(*net.UnixListener)
	if ok {
		u.SetUnlinkOnClose(false)
	}
	if err = os.Chmod(hidden, 0o600); err == nil {
		err = os.Link(hidden, path)
	}
	if err != nil {
		_ = l.Close()
		return nil, refused(err)
	}
	bounded := newBounded(l, maxConnections)
	bounded.heads = true
	return &unixListener{Listener: bounded, path: path}, nil
}

// unixListener removes its socket at the end.
type unixListener struct {
	net.Listener
	path string
}

// Close closes the listener and removes the socket.
func (l *unixListener) Close() error {
	_ = os.Remove(l.path)
	return l.Listener.Close()
}

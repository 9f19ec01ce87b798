package backendtest

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// dialReachesAPort: Dial reaches a program of this sandbox only, and the connection ends with it.
func dialReachesAPort(t *testing.T, s *suite) {
	x, other := s.open(t), s.open(t)
	const port = 8123
	if !s.b.Capabilities(t.Context()).Dial {
		if _, err := x.Dial(t.Context(), port); sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable {
			t.Errorf("got %v, want %s", err, sandboxmcp.CodeIsolationUnavailable)
		}
		return
	}
	refused := func(x *box, when string) {
		t.Helper()
		if c, err := x.Dial(t.Context(), port); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, %v, want %v", when, c, err, syscall.ECONNREFUSED)
		}
	}
	refused(x, "before a program listens")
	r, out, errs := x.start(t, x.python(t, `
import socket
s = socket.create_server(("127.0.0.1", 8123))
print("up", flush=True)
while True:
    c, peer = s.accept()
    while data := c.recv(65536):
        c.sendall(data.upper())
    c.close()
`))
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatalf("does not come up: %q", errs.String())
	}
	for range 2 {
		if got, err := exchange(t, x, port, "hello"); err != nil || got != "HELLO" {
			t.Errorf("got %q, %v, want HELLO", got, err)
		}
	}
	refused(other, "in another sandbox")
	for _, bad := range []int{0, -1, 65536} {
		if _, err := x.Dial(t.Context(), bad); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("port %d: got %v, want %s", bad, err, sandboxmcp.CodeInvalidArgument)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Dial(ended, port); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: got %v, want %v", err, context.Canceled)
	}
	c, err := x.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, syscall.ETIMEDOUT) || isTimeout(err) {
		t.Errorf("the connection outlives the sandbox: %d, %v", n, err)
	}
	if _, err := x.Dial(t.Context(), port); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("after Kill: got %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
	}
	_, _ = r.Wait(t.Context())
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// exchange sends a line to a port and returns what comes back.
func exchange(t *testing.T, x *box, port int, line string) (string, error) {
	t.Helper()
	c, err := x.Dial(t.Context(), port)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err = io.WriteString(c, line); err != nil {
		return "", err
	}
	got := make([]byte, len(line))
	_, err = io.ReadFull(c, got)
	return string(got), err
}

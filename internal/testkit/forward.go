package testkit

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
)

// OverTCP returns the address tcp://… of a unix socket unix://…. A client cannot know that it is on this
// machine. The address answers until the test ends.
func OverTCP(t testing.TB, socket string) string {
	t.Helper()
	return OverTLS(t, socket, nil)
}

// OverTLS is OverTCP with TLS. A nil configuration means none.
func OverTLS(t testing.TB, socket string, config *tls.Config) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if config != nil {
				c = tls.Server(c, config)
			}
			go forward(c, strings.TrimPrefix(socket, "unix://"))
		}
	}()
	return "tcp://" + l.Addr().String()
}

// forward connects a connection with a socket until both directions have ended.
func forward(c net.Conn, socket string) {
	defer func() { _ = c.Close() }()
	var d net.Dialer
	up, err := d.DialContext(context.Background(), "unix", socket)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	done := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if w, ok := to.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
		done <- struct{}{}
	}
	go pass(up, c)
	pass(c, up)
	<-done
}

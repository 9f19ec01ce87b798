// Package listen wraps listeners for servers of net/http, so that each door of the
// program treats a failed Accept alike.
package listen

import (
	"errors"
	"net"
)

// Steady returns l with an Accept whose failures do not end a server of net/http. Such a
// server goes on after a temporary error and ends for good after any other, and a lack of
// descriptors or of epoll watches passes. [net.ErrClosed] is returned as it is.
func Steady(l net.Listener) net.Listener { return steady{l} }

type steady struct{ net.Listener }

// Accept implements [net.Listener].
func (s steady) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		err = temporary{err}
	}
	return c, err
}

// temporary is an error after which a server of net/http waits and calls Accept again.
type temporary struct{ error }

func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }
func (t temporary) Unwrap() error { return t.error }

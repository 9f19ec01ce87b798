// Package listen opens ports and serves HTTP on them. A failed Accept does not end a
// server, and idle connections do not keep new ones out.
package listen

import (
	"errors"
	"net"
)

// Steady returns l with an Accept whose errors do not end a net/http server. Such a
// server retries only after a temporary error. Steady marks errors as temporary, because
// a lack of descriptors or epoll watches passes. [net.ErrClosed] is returned as it is.
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

// temporary is an error after which a net/http server waits and calls Accept again.
type temporary struct{ error }

func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }
func (t temporary) Unwrap() error { return t.error }

package listen_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/listen"
)

// failing is a listener whose Accept fails.
type failing struct {
	net.Listener
	err error
}

func (f failing) Accept() (net.Conn, error) { return nil, f.err }

// TestAFailedAcceptIsTemporary: net/http decides by Temporary whether it goes on.
func TestAFailedAcceptIsTemporary(t *testing.T) {
	shortage := os.NewSyscallError("epoll_ctl", syscall.ENOSPC)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "accept", Err: shortage}, true},
		{&net.OpError{Op: "accept", Err: net.ErrClosed}, false},
	} {
		_, err := listen.Steady(failing{err: c.err}).Accept()
		if !errors.Is(err, c.err) {
			t.Errorf("got %v, want what wraps %v", err, c.err)
		}
		if temporary, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err); !ok || temporary.Temporary() != c.want {
			t.Errorf("%v: got temporary %v, want %v", c.err, !c.want, c.want)
		}
	}
}

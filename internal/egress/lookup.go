package egress

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Bounds on the answers of name servers, which the owner of a name controls. Each address costs the resolver several
// system calls, and the dialer a few more, so an answer of 64 KiB takes 80 ms of CPU time.
const (
	maxAnswer = 4 << 10 // bytes of an answer by TCP: some 250 addresses
	maxTries  = 32      // addresses of a name that the dialer tries
)

var (
	errAnswer = errors.New("the answer of the name server is too long")
	errTries  = errors.New("the name has too many addresses")
)

// newResolver returns a resolver that asks the DNS server at an address, or, if server is "", the DNS servers of the
// machine. It bounds answers and charges them to the sandbox of the context; see withEffort.
func newResolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: server != "", Dial: func(ctx context.Context, network, at string) (net.Conn, error) { //nolint:forbidigo // a field, and it has a context
		if server != "" {
			at = server
		}
		var n net.Dialer
		c, err := n.DialContext(ctx, network, at)
		if err != nil {
			return nil, err
		}
		effort, _ := ctx.Value(effortKey{}).(*backend.Effort)
		if u, ok := c.(*net.UDPConn); ok { // it must stay a net.PacketConn: by that the resolver sees that it sends datagrams
			return &datagrams{u, effort}, nil
		}
		return &answers{c, effort, maxAnswer}, nil
	}}
}

type effortKey struct{}

// withEffort returns a context whose lookups are charged to a sandbox.
func withEffort(ctx context.Context, e *backend.Effort) context.Context {
	return context.WithValue(ctx, effortKey{}, e)
}

// charge takes the cost of an answer of n bytes from the sandbox's share. It does not wait: the next connection of the
// sandbox does.
func charge(e *backend.Effort, n int) {
	e.Spend(time.Duration(n) * backend.CostAnswerByte)
}

// datagrams is a connection to a DNS server by UDP. It charges what it reads.
type datagrams struct {
	*net.UDPConn

	effort *backend.Effort
}

func (c *datagrams) Read(p []byte) (int, error) {
	n, err := c.UDPConn.Read(p)
	charge(c.effort, n)
	return n, err
}

// answers is a connection to a DNS server by TCP. It charges what it reads, and fails after maxAnswer bytes.
type answers struct {
	net.Conn

	effort *backend.Effort
	left   int
}

func (c *answers) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errAnswer
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	charge(c.effort, n)
	return n, err
}

// dialFew connects to an address as n does, but tries at most maxTries addresses of a name. judge returns an error for
// an address that is refused. It is called after name resolution with the address that the socket is about to connect
// to, so DNS rebinding cannot evade it.
func dialFew(ctx context.Context, n net.Dialer, address string, judge func(to string) error) (net.Conn, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var tries atomic.Int32
	var first atomic.Pointer[error]
	n.Control = func(_, to string, _ syscall.RawConn) error {
		if tries.Add(1) > maxTries {
			stop() // ends the loop of the dialer
			return errTries
		}
		err := judge(to)
		if err != nil {
			first.CompareAndSwap(nil, &err)
		}
		return err
	}
	c, err := n.DialContext(ctx, "tcp", address)
	if err != nil && tries.Load() > maxTries {
		err = errTries
		if p := first.Load(); p != nil {
			err = *p
		}
	}
	return c, err
}

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

// Bounds of what the name servers of a host may answer. Each address costs the resolver several system
// calls, and the dialer a few more, so that one answer of 64 KiB takes 80 ms of CPU time.
const (
	maxAnswer = 4 << 10 // bytes of an answer: some 250 addresses
	maxTries  = 32      // addresses that one connection tries
)

var (
	errAnswer = errors.New("the answer of the name server is too long")
	errTries  = errors.New("the name has too many addresses")
)

// newResolver returns the machine's resolver. It asks the DNS server at that address; "": those of the machine.
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
		if u, ok := c.(*net.UDPConn); ok { // the resolver knows a datagram socket by its methods
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

// charge takes the cost of an answer of n bytes from the sandbox's share.
func charge(e *backend.Effort, n int) {
	e.Spend(time.Duration(n) * backend.CostAnswerByte) // the next connection of the sandbox rests for it
}

// datagrams is a connection to a DNS server by UDP.
type datagrams struct {
	*net.UDPConn

	effort *backend.Effort
}

func (c *datagrams) Read(p []byte) (int, error) {
	n, err := c.UDPConn.Read(p)
	charge(c.effort, n)
	return n, err
}

// answers is a connection to a DNS server by TCP, for one answer.
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

// dialFew connects to an address as n does, but tries at most maxTries addresses of a name. judge says why one
// of them is refused, or returns nil. It gets the address that the socket connects to, after name resolution.
// DNS rebinding therefore cannot pass it.
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

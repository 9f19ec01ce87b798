package backend

import (
	"context"
	"errors"
	"net"
)

// ProxyPort is where Network.Proxy listens in a sandbox, on 127.0.0.1.
const ProxyPort = 3128

// A Networker is a Sandbox that can be given a network.
type Networker interface {
	// Network opens what is missing of the way out: ports 80 and 443 always, and
	// those that are named. It may be called again with others while the sandbox
	// lives, also while programs run in it, and concurrently; every call returns
	// the same Network with more in it. What was opened stays open until the
	// sandbox ends, which closes it. Errors are *sandboxmcp.Error; what was open
	// before a failed call is open after it.
	Network(ctx context.Context, ports []int) (*Network, error)
}

// Network is a sandbox's way out: sockets that stand inside of it and are ours.
// Whatever address a program asks for, it reaches them; what no socket listens
// for is refused by the sandbox's own kernel at once. Nothing else leads out, and
// what comes out of them is hostile.
//
// Its fields are read under the lock that the caller of Networker.Network holds
// over its calls: a later call puts more into TCP.
type Network struct {
	DNS    []net.PacketConn     // port 53 of every address, UDP; answers come from the address that was asked
	DNSTCP []net.Listener       // port 53, TCP
	Proxy  net.Listener         // 127.0.0.1:3128, for programs that use a proxy
	TCP    map[int]net.Listener // by port, of every address: LocalAddr of a connection is the address that the program asked for
}

// Close closes all sockets. Nobody listens in the sandbox then, and programs in
// it are refused. It may be called more than once.
func (n *Network) Close() error {
	if n == nil {
		return nil
	}
	var errs []error
	done := func(err error) {
		if err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, c := range n.DNS {
		done(c.Close())
	}
	for _, l := range n.DNSTCP {
		done(l.Close())
	}
	if n.Proxy != nil {
		done(n.Proxy.Close())
	}
	for _, l := range n.TCP {
		done(l.Close())
	}
	return errors.Join(errs...)
}

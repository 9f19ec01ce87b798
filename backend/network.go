package backend

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
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
// A later call of Networker.Network puts more into TCP: whoever reads that map
// beside such calls takes a lock around both. DNS, DNSTCP and Proxy stay as they
// are. What DNS.ReadFrom returns as the sender is what WriteTo has to be given;
// it knows which address was asked.
type Network struct {
	DNS    []net.PacketConn     // port 53 of every address, UDP; answers come from the address that was asked
	DNSTCP []net.Listener       // port 53, TCP
	Proxy  net.Listener         // 127.0.0.1:3128, for programs that use a proxy
	TCP    map[int]net.Listener // by port, of every address: LocalAddr of a connection is the address that the program asked for

	// Refused tells where programs wanted to go that no socket listens for, since it
	// was last asked, so that they can be told what to ask for: the sandbox's kernel
	// has refused them. lost is how many others there were that are not in the list.
	// It may be called concurrently, and after the sandbox's end once more; nil: not
	// known on this backend.
	Refused func() (list []Refusal, lost int)

	// Effort bounds the server's own time for the sockets. The server of the sockets
	// calls Pace after each question and connection.
	Effort *Effort

	// Certificates is the file of the host's certificate authorities as programs
	// in the sandbox see it; empty: there is none.
	Certificates string

	// Chosen says that somebody named that file. Node has a list of its own, and
	// reads another at its start, which doubles the time of that: so it is told of
	// one that was named, and not of the system's.
	Chosen bool
}

// Refusal is a destination that programs asked for and that is not open.
type Refusal struct {
	Network string // "tcp" or "udp"
	Address netip.AddrPort
	Count   int // of attempts
}

// Environ is what programs are told of the network, KEY=value: the proxy, for
// those that use one, and the certificate authorities. None of it is needed to get
// out, and none of it opens anything.
func (n *Network) Environ() []string {
	const proxy = "http://127.0.0.1:3128"
	env := []string{"NO_PROXY=localhost,127.0.0.1,::1", "no_proxy=localhost,127.0.0.1,::1"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env = append(env, name+"="+proxy, strings.ToLower(name)+"="+proxy)
	}
	if n.Certificates == "" {
		return env
	}
	if n.Chosen {
		env = append(env, "NODE_EXTRA_CA_CERTS="+n.Certificates)
	}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"} {
		env = append(env, name+"="+n.Certificates)
	}
	return env
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

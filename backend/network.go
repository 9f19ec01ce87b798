package backend

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
)

// ProxyPort is where Network.Proxy listens in a sandbox, on 127.0.0.1. Programs of a sandbox cannot
// listen below 1024, so they neither miss the port nor have it first.
const ProxyPort = 312

const (
	proxyURL = "http://127.0.0.1:312"
	ownHosts = "localhost,127.0.0.1,::1,0.0.0.0,sandbox"
)

// Proxies returns the proxy variables of every program. A program whose sandbox reaches no host has
// them, too: the proxy then answers each request with the reason why the host is not open.
func Proxies() map[string]string {
	return map[string]string{"http_proxy": proxyURL, "https_proxy": proxyURL, "no_proxy": ownHosts}
}

// A Networker is a Sandbox that can be given a network.
type Networker interface {
	// Network opens the missing sockets: for ports 80 and 443 always, and for the named ports. It
	// may be called again with other ports while the sandbox lives, also while programs run in it,
	// and concurrently. Every call returns the same Network with more sockets in it. Sockets stay
	// open until the sandbox ends and closes them. Errors are *sandboxmcp.Error. A failed call does
	// not close sockets of earlier calls.
	Network(ctx context.Context, ports []int) (*Network, error)

	// Refuse is like Network, but for a sandbox whose programs may reach no host. It opens no TCP
	// port besides DNS and the proxy, so the sandbox's kernel refuses connections to addresses. The
	// caller refuses DNS and proxy requests, and reports the hosts in them. Isolation then reports
	// sandboxmcp.WallTold, or WallToldNames if Network.Refused is nil. After a call of Network it reports
	// WallEgress.
	Refuse(ctx context.Context) (*Network, error)

	// BeforeSockets has f called before a program of the sandbox makes its first network socket,
	// at most once. The program waits until f returns; f may call Network or Refuse. If
	// BeforeSockets returns false, f is not called: a program may have made a socket already, or
	// the sandbox's kernel does not report it.
	BeforeSockets(f func()) bool
}

// Network is a sandbox's only way out: sockets inside the sandbox that the server holds.
// Connections to every IPv4 address and to ::1 reach them, if a socket listens on the port. The
// kernel refuses connections to all other ports and addresses at once. The server must not trust
// the data that it reads from these sockets.
//
// A later call of Networker.Network adds to TCP. A caller that reads the map beside such calls
// holds a lock around both. DNS, DNSTCP and Proxy do not change. The sender that DNS.ReadFrom
// returns must be passed to WriteTo: it contains the address that was asked.
type Network struct {
	DNS    []net.PacketConn     // port 53 of every such address, UDP; answers come from the address that was asked
	DNSTCP []net.Listener       // port 53, TCP
	Proxy  net.Listener         // 127.0.0.1:312, for programs that use a proxy
	TCP    map[int]net.Listener // by port, for every such address: LocalAddr of a connection is the address that the program connected to

	// Refused returns the destinations that the sandbox's kernel has refused since the last call,
	// because no socket listens for them. Callers report them to programs, so that they can request
	// them. lost is how many others are not in the list. Refused may be called concurrently, and
	// once after the sandbox's end. nil: unknown on this backend.
	Refused func() (list []Refusal, lost int)

	// Effort bounds the server's own time for the sockets. The server of the sockets
	// calls Pace after each question and connection.
	Effort *Effort

	// Certificates is the path, in the sandbox, of the file of the host's certificate authorities;
	// empty: there is none.
	Certificates string

	// Chosen says that the operator named that file. Node has a list of its own; loading another
	// doubles its start-up time. So NODE_EXTRA_CA_CERTS is set only for a named file, and not for
	// the system's.
	Chosen bool
}

// Refusal is a destination that programs tried to reach and that is not open.
type Refusal struct {
	Network string // "tcp" or "udp"
	Address netip.AddrPort
	Count   int // of attempts
}

// Environ returns environment variables about the network, as KEY=value: the proxy, for programs
// that use one, and the certificate authorities. They are hints: the network works without them,
// and they permit nothing.
func (n *Network) Environ() []string {
	env := []string{"NO_PROXY=" + ownHosts, "no_proxy=" + ownHosts}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env = append(env, name+"="+proxyURL, strings.ToLower(name)+"="+proxyURL)
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

// Close closes all sockets. Connections of programs in the sandbox are then refused. It may be
// called more than once.
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

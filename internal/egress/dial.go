package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// BlockedError means that all addresses of a host are refused.
type BlockedError struct {
	Host sandboxmcp.Host
	Addr netip.Addr
	What string // why the address is refused; see Special
}

// Error names the host and why it is refused. It does not tell the address of a name, because models and
// callers over HTTP read it: they would learn the addresses of the server's network.
func (e *BlockedError) Error() string {
	if _, err := netip.ParseAddr(string(e.Host)); err == nil {
		return string(e.Host) + " is " + e.What
	}
	return string(e.Host) + " has an address that is " + e.What
}

// dialer connects to hosts by name and checks the address that the connection uses. It
// ignores proxy variables in the server's environment.
type dialer struct {
	timeout  time.Duration
	private  atomic.Pointer[map[sandboxmcp.Domain]bool] // Config.Private; no lookup matches a wildcard
	resolve  map[sandboxmcp.Domain]netip.AddrPort
	resolver *net.Resolver
}

func newDialer(c Config, timeout time.Duration) *dialer {
	server := ""
	if c.DNS.IsValid() {
		server = c.DNS.String()
	}
	d := &dialer{timeout: timeout, resolve: c.Resolve, resolver: newResolver(server)}
	d.setPrivate(c.Private)
	return d
}

// setPrivate replaces the hosts that may have a special address.
func (d *dialer) setPrivate(hosts []sandboxmcp.Domain) {
	all := make(map[sandboxmcp.Domain]bool, len(hosts))
	for _, p := range hosts {
		all[p] = true
	}
	d.private.Store(&all)
}

// connect connects to the host by TCP. If each of its addresses is special, the error
// wraps a [*BlockedError]. private reports whether the host was allowed to have a special address. A setting that
// changes meanwhile does not change both of them.
func (d *dialer) connect(ctx context.Context, h sandboxmcp.Host, port int) (c net.Conn, private bool, err error) {
	private = d.mayBePrivate(h, port)
	n := net.Dialer{Timeout: d.timeout, Resolver: d.resolver}
	for _, key := range []sandboxmcp.Domain{{Host: h, Port: port}, {Host: h}} {
		if to, ok := d.resolve[key]; ok {
			c, err = n.DialContext(ctx, "tcp", to.String())
			return c, private, err
		}
	}
	judge := func(to string) error { return check(h, to) }
	if private {
		judge = anyAddress
	}
	// The final dot keeps the resolver from appending the server's search domains.
	c, err = dialFew(ctx, n, net.JoinHostPort(string(h)+".", strconv.Itoa(port)), judge)
	return c, private, err
}

func (d *dialer) mayBePrivate(h sandboxmcp.Host, port int) bool {
	private := *d.private.Load()
	return private[sandboxmcp.Domain{Host: h, Port: port}] || private[sandboxmcp.Domain{Host: h}] && (port == 80 || port == 443)
}

func anyAddress(string) error { return nil }

func check(h sandboxmcp.Host, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &BlockedError{Host: h, What: "of no known form"}
	}
	what := Special(to.Addr())
	if what == "" && ofThisMachine(to.Addr()) {
		what = "this machine's own"
	}
	if what != "" {
		return &BlockedError{Host: h, Addr: to.Addr(), What: what}
	}
	return nil
}

// Unreachable says briefly why a dial failed. It reveals nothing of the server's network.
func Unreachable(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "the name does not exist"
		}
		return "the name could not be resolved"
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "it did not answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "it refused the connection"
	default:
		return "it could not be reached"
	}
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

package egress

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Caps bound one [Link], and All all of them. A field of 0 is its default.
type Caps struct {
	Conns     int           // connections at once, 256, and not more than a quarter of All
	All       int           // connections at once of all links of the Proxy, 4096, and not more than a twelfth of this process's descriptors
	PerSecond int           // new connections a second, 200; twice as many may come in a burst
	Questions int           // DNS questions a second, 500; likewise
	Bytes     int64         // both ways together until the next reset of the report, 8 GiB; exceeded by 4 MiB for each way of a connection at most
	Names     int           // names that get an address, 4096
	Entries   int           // distinct entries in each list of a report, 200
	Head      time.Duration // how long a program may take for a ClientHello or the head of a request, 10 s
	Dial      time.Duration // resolving and connecting, 10 s
	Idle      time.Duration // how long a connection may carry nothing, 10 min
}

// Config is what a [Proxy] needs. Everything may be left out.
type Config struct {
	Logger *slog.Logger

	// Private are the hosts whose address may be special, each at its ports. They
	// open nothing: a policy has to allow them as any other. Wildcards are not
	// heeded.
	Private []sandboxmcp.Domain

	// For tests only, and told by [Proxy.Weak]: where the connections of a host, at
	// its Port or at all for 0, go instead of to its address, without a check of
	// the address; and the resolver for every other name.
	Resolve map[sandboxmcp.Domain]netip.AddrPort
	DNS     netip.AddrPort

	Caps Caps
	Now  func() time.Time
}

// Proxy dials for sandboxes. A server has one. It may be used by several
// goroutines.
type Proxy struct {
	log  *slog.Logger
	dial *dialer
	caps Caps
	now  func() time.Time
	weak []string
	busy atomic.Int64 // connections from all sandboxes
}

// New makes a Proxy. It holds nothing that has to be closed.
func New(c Config) *Proxy {
	p := &Proxy{log: c.Logger, caps: c.Caps.orDefault(), now: c.Now}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.now == nil {
		p.now = time.Now
	}
	p.dial = newDialer(c, p.caps.Dial)
	if len(c.Resolve) > 0 {
		p.weak = append(p.weak, "network: a setting for tests leads connections of some names elsewhere")
	}
	if c.DNS.IsValid() {
		p.weak = append(p.weak, "network: a setting for tests has names resolved by another server")
	}
	return p
}

// Weak says in words what settings for tests have changed; nil: nothing. It
// belongs into the report of what isolates a run.
func (p *Proxy) Weak() []string { return append([]string(nil), p.weak...) }

// Attach serves the sockets of n until the link is closed, which closes them.
func (p *Proxy) Attach(n *backend.Network, policy Policy) *Link {
	l := newLink(p, policy, n.Effort)
	l.Serve(n)
	return l
}

func (c Caps) orDefault() Caps {
	def := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	wait := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	// Each is two sockets, and as many as four descriptors more while the kernel
	// copies: half of what there is is left to all else.
	def(&c.All, min(4096, descriptors()/12))
	def(&c.Conns, max(min(256, c.All/4), 1))
	def(&c.PerSecond, 200)
	def(&c.Questions, 500)
	def(&c.Names, 4096)
	def(&c.Entries, 200)
	if c.Bytes <= 0 {
		c.Bytes = 8 << 30
	}
	wait(&c.Head, 10*time.Second)
	wait(&c.Dial, 10*time.Second)
	wait(&c.Idle, 10*time.Minute)
	return c
}

package egress

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Caps holds limits of each [Link]; All is a limit of all links together. A field of 0
// means its default.
type Caps struct {
	Conns     int           // open connections of one link; default 256, at most a quarter of All
	All       int           // open connections of all links of the Proxy; default 4096, at most a twelfth of this process's descriptors
	Own       int           // open connections of each link that All does not limit, so that others leave it some; default 8, at most an eighth of Conns
	PerSecond int           // new connections per second, with bursts of twice as many; default 200
	Questions int           // DNS questions per second, with bursts of twice as many; default 500
	Bytes     int64         // bytes in both directions until the report is reset, default 8 GiB; each direction of a connection may exceed it by 4 MiB
	Names     int           // names that get an address; default 4096
	Entries   int           // distinct entries in each list of a report; default 200
	Head      time.Duration // time for a ClientHello or the head of a request; default 10 s
	Dial      time.Duration // time to resolve and connect; default 10 s
	Idle      time.Duration // time that a connection may carry no bytes; default 10 min
}

// Config configures a [Proxy]. All fields are optional.
type Config struct {
	Logger *slog.Logger

	// Private lists hosts that may have a special address, at the ports of the
	// entry. It does not open them: the policy decides. Wildcards are ignored.
	Private []sandboxmcp.Domain

	// Resolve and DNS are for tests, and Proxy.Weak reports them. Resolve maps a
	// host, at one port or at all (Port 0), to the address that connections go to;
	// that address is not checked. DNS is the resolver for all other names.
	Resolve map[sandboxmcp.Domain]netip.AddrPort
	DNS     netip.AddrPort

	Caps Caps
	Now  func() time.Time
}

// defaultHead is how long a program may take for the head of a request.
const defaultHead = 10 * time.Second

// Proxy dials hosts for sandboxes. A server has one. Its methods may be called
// concurrently.
type Proxy struct {
	log  *slog.Logger
	dial *dialer
	caps Caps
	now  func() time.Time
	weak []string
	busy atomic.Int64 // connections from all sandboxes
}

// New makes a Proxy. It needs no Close.
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
		p.weak = append(p.weak, "network: a setting for tests redirects the connections of some names")
	}
	if c.DNS.IsValid() {
		p.weak = append(p.weak, "network: a setting for tests names another DNS server")
	}
	return p
}

// Weak describes the settings for tests that are active, for the list of weaknesses in
// a run's isolation report. It is empty without such settings.
func (p *Proxy) Weak() []string { return append([]string(nil), p.weak...) }

// SetPrivate replaces [Config.Private]. The next [Link.Cut] ends connections to hosts that are gone from it.
func (p *Proxy) SetPrivate(hosts []sandboxmcp.Domain) { p.dial.setPrivate(hosts) }

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
	// A connection uses two sockets, and up to four pipe descriptors while splice
	// copies. A twelfth for connections leaves half of the descriptors to the rest.
	def(&c.All, min(4096, descriptors()/12))
	def(&c.Conns, max(min(256, c.All/4), 1))
	if c.Own <= 0 {
		c.Own = min(8, c.Conns/8)
	}
	def(&c.PerSecond, 200)
	def(&c.Questions, 500)
	def(&c.Names, 4096)
	def(&c.Entries, 200)
	if c.Bytes <= 0 {
		c.Bytes = 8 << 30
	}
	wait(&c.Head, defaultHead)
	wait(&c.Dial, 10*time.Second)
	wait(&c.Idle, 10*time.Minute)
	return c
}

package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// boundedListener keeps at most a fixed number of connections open. For a further one it
// closes the idlest connection of the client that has most. So idle connections cannot
// block other clients. The client of a connection is the caller whose key or token its requests had. Before that, it is
// the address of the connection. Addresses alone do not suffice: a proxy has one for all of its callers, and a caller may
// have many.
type boundedListener struct {
	net.Listener
	most int
	now  func() time.Time

	heads bool // the connections carry HTTP without TLS; a request may have maxLines lines in its head

	mu   sync.Mutex
	open map[*boundedConn]struct{}
}

// Bounded returns l with at most most open connections. The http.Server that uses it must have
// [ConnState] as its ConnState.
func Bounded(l net.Listener, most int) net.Listener { return newBounded(l, most) }

func newBounded(l net.Listener, most int) *boundedListener {
	return &boundedListener{Listener: Steady(l), most: most, now: time.Now, open: map[*boundedConn]struct{}{}}
}

// Accept waits for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b := &boundedConn{Conn: c, l: l, client: Client(c.RemoteAddr().String())}
	b.moved.Store(l.now().UnixNano())
	l.mu.Lock()
	var idlest *boundedConn
	if len(l.open) >= l.most {
		idlest = l.idlestLocked()
		delete(l.open, idlest)
	}
	l.open[b] = struct{}{}
	l.mu.Unlock()
	if idlest != nil {
		_ = idlest.Close()
	}
	return b, nil
}

// idlestLocked returns the connection to close in favor of a new one. It belongs to the
// client with most connections. Connections without a request in progress come first. Among
// equals it takes the one whose last transfer was longest ago.
func (l *boundedListener) idlestLocked() *boundedConn {
	clients, strangers := map[client]int{}, 0
	for c := range l.open {
		clients[c.of()]++
		if c.caller.Load() == nil {
			strangers++
		}
	}
	// A peer with many addresses counts as many clients with few connections each. So all connections without a proved
	// caller together get half of the places.
	crowded := 2*strangers >= l.most
	var found *boundedConn
	for c := range l.open {
		if crowded && c.caller.Load() != nil {
			continue
		}
		if found == nil || c.beforeLocked(found, clients) {
			found = c
		}
	}
	return found
}

func (c *boundedConn) beforeLocked(other *boundedConn, clients map[client]int) bool {
	if mine, its := clients[c.of()], clients[other.of()]; mine != its {
		return mine > its
	}
	if mine, its := c.asked.Load(), other.asked.Load(); mine != its {
		return !mine
	}
	return c.moved.Load() < other.moved.Load()
}

// Client returns a name for the client at an address with a port. For IPv4 it is the address. For IPv6 it is the
// network of 64 bits, because one machine can use any address in its network. For IPv4 loopback it is 127.0.0.0/8,
// because every user of the machine can use any address in it. Clients of unix sockets have the empty name.
func Client(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	ip, bits := a.Addr().Unmap(), 64 // the smallest IPv6 network that is assigned to a machine
	switch {
	case ip.Is4() && ip.IsLoopback():
		bits = 8
	case ip.Is4():
		return ip.String()
	}
	network, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return ""
	}
	return network.String()
}

// boundedConn is a connection that records when it last moved bytes.
type boundedConn struct {
	net.Conn
	l      *boundedListener
	client string
	caller atomic.Pointer[string] // caller of its latest request; nil: none is known
	moved  atomic.Int64           // Unix time in nanoseconds of the last transfer
	asked  atomic.Bool            // a request is being answered
	lines  atomic.Int64           // lines that were read of the head of a request; see boundedListener.heads
}

// client identifies the peer of a connection: its proved caller, or its address while no caller is known. One field is
// empty.
type client struct{ address, caller string }

func (c *boundedConn) of() client {
	if who := c.caller.Load(); who != nil {
		return client{caller: *who}
	}
	return client{address: c.client}
}

type connKey struct{}

// Belongs notes the caller of a request. ctx is the context of the request, on a connection that
// [Serve] serves, or a server with [ConnContext].
func Belongs(ctx context.Context, caller string) {
	c, ok := ctx.Value(connKey{}).(*boundedConn)
	if !ok {
		return
	}
	if who := c.caller.Load(); who == nil || *who != caller {
		c.caller.Store(&caller)
	}
}

// ConnContext returns a context for the requests of a connection, for [Belongs].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if b, ok := c.(*boundedConn); ok {
		return context.WithValue(ctx, connKey{}, b)
	}
	return ctx
}

// maxLines bounds the lines of the head of an HTTP request. Lines count only at the next read, because the latest read
// may contain the end of the head and the beginning of the body.
const maxLines = 128

var errFields = errors.New("the head has too many fields")

// Read reads, and records the time if bytes arrived.
func (c *boundedConn) Read(p []byte) (int, error) {
	head := c.l.heads && !c.asked.Load()
	if head && c.lines.Load() > maxLines {
		return 0, errFields
	}
	n, err := c.Conn.Read(p)
	c.note(n)
	if head {
		c.lines.Add(int64(bytes.Count(p[:n], []byte{'\n'})))
	}
	return n, err
}

// Write writes, and records the time if bytes were sent.
func (c *boundedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.note(n)
	return n, err
}

func (c *boundedConn) note(n int) {
	if n > 0 {
		c.moved.Store(c.l.now().UnixNano())
	}
}

// Close closes the connection and lets another one in.
func (c *boundedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// certified is a prefix. The caller of a connection whose peer has proved the key of a certificate is certified and the
// address of the peer.
const certified = "certified\x00"

// ConnState records which connections have a request that is being answered, and that a certificate proves a
// caller. Connections of other listeners are left alone.
func ConnState(c net.Conn, s http.ConnState) {
	b, ok := c.(*boundedConn)
	if !ok {
		if t, wraps := c.(*tls.Conn); wraps {
			if b, ok = t.NetConn().(*boundedConn); ok && s == http.StateActive && len(t.ConnectionState().PeerCertificates) > 0 {
				who := certified + b.client
				b.caller.Store(&who)
			}
		}
	}
	if ok {
		b.asked.Store(s == http.StateActive)
		if s == http.StateActive { // the head has ended
			b.lines.Store(0)
		}
	}
}

// NetConn returns the connection that c wraps.
func (c *boundedConn) NetConn() net.Conn { return c.Conn }

package egress

import (
	"context"
	"io"
	"maps"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Link serves the sockets of one sandbox. Its methods may be called concurrently.
type Link struct {
	proxy     *Proxy
	policy    Policy
	names     *names
	ledger    *ledger
	questions *bucket
	arrivals  *bucket
	effort    *backend.Effort // bounds the server's time for this sandbox

	ctx    context.Context //nolint:containedctx // the lifetime of the link, which Close ends
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	served map[io.Closer]bool  // the sandbox's sockets
	open   map[net.Conn]bool   // all connections, from the sandbox and to hosts
	out    map[net.Conn]*visit // connections to hosts, with the connection from the sandbox
	round  int                 // number of calls of Review
	busy   int                 // connections from the sandbox
	wg     sync.WaitGroup

	refusals sync.Mutex // held while refused is called and its result is counted
	refused  func() ([]backend.Refusal, int)
}

func newLink(p *Proxy, policy Policy, effort *backend.Effort) *Link {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // a link outlives the call that makes it, until Close
	return &Link{
		proxy: p, policy: policy, effort: effort, ctx: ctx, cancel: cancel,
		names: newNames(p.caps.Names), ledger: &ledger{max: p.caps.Entries},
		questions: newBucket(p.caps.Questions), arrivals: newBucket(p.caps.PerSecond),
		served: map[io.Closer]bool{}, open: map[net.Conn]bool{}, out: map[net.Conn]*visit{},
	}
}

// Serve serves the sockets of n that it does not serve yet. The caller calls it again
// when n has more sockets. If the link is closed, Serve closes the sockets.
func (l *Link) Serve(n *backend.Network) {
	l.refusals.Lock()
	l.refused = n.Refused // the same function on every call
	l.refusals.Unlock()
	for _, c := range n.DNS {
		l.start(c, func() { l.serveUDP(c) })
	}
	for _, s := range n.DNSTCP {
		l.start(s, func() { l.accept(s, 53, l.serveDNS) })
	}
	if n.Proxy != nil {
		l.start(n.Proxy, func() { l.accept(n.Proxy, backend.ProxyPort, l.serveProxy) })
	}
	for port, s := range n.TCP {
		l.start(s, func() { l.accept(s, port, func(c net.Conn) { l.servePort(c, port) }) })
	}
}

func (l *Link) start(s io.Closer, serve func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = s.Close()
		return
	}
	if l.served[s] {
		return
	}
	l.served[s] = true
	l.wg.Go(serve)
}

// Report returns what was allowed and what was refused, also by the kernel. With reset
// the next report starts empty; it then counts bytes of connections that are still
// copying.
func (l *Link) Report(reset bool) Report {
	l.countRefused()
	return l.ledger.report(reset)
}

// countRefused counts connections that the kernel refused because no socket listens on
// their port.
func (l *Link) countRefused() {
	l.refusals.Lock()
	defer l.refusals.Unlock()
	if l.refused == nil {
		return
	}
	list, lost := l.refused()
	for _, r := range list {
		a := r.Address.Addr().Unmap()
		if a.IsLoopback() { // the program tried to reach a server in its own sandbox
			continue
		}
		e := Entry{Host: a.String(), Port: int(r.Address.Port()), Times: r.Count, Via: ViaTCP, Reason: "the port is not open", Denial: sandboxmcp.DenialClosed}
		if h, ok := l.names.name(a); ok {
			e.Host = string(h)
		}
		if verdict, closed := l.policy.Closed(); closed {
			verdict = closedIfUnsaid(verdict)
			e.Rule, e.Reason, e.Denial = verdict.Rule, verdict.Reason, verdict.Denial
		}
		if r.Network == "udp" {
			e.Via, e.Reason, e.Denial = ViaUDP, "nothing but TCP leaves a sandbox", sandboxmcp.DenialOther
		}
		l.ledger.deny(e)
	}
	l.ledger.denyOthers(lost)
}

// Close closes the sockets and every connection, cancels pending decisions, and
// returns when all goroutines of the link have ended. It may be called more than once.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.cancel()
	for s := range l.served {
		_ = s.Close() // it may be closed already
	}
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// accept calls serve for each connection of a listener, in a separate goroutine. It refuses
// connections beyond the caps.
func (l *Link) accept(s net.Listener, port int, serve func(net.Conn)) {
	for {
		c, err := s.Accept()
		if err != nil {
			if l.stopped(err) {
				return
			}
			continue
		}
		if why := l.enter(c); why != "" {
			l.ledger.deny(Entry{Host: l.aim(c), Port: port, Via: ViaTCP, Reason: why})
			reset(c)
			l.effort.Pace(backend.CostRefusal)
			continue
		}
		giveUp(c, l.proxy.caps.Idle)
		l.wg.Go(func() {
			defer l.leave(c)
			defer l.survive()
			serve(c)
		})
		l.effort.Pace(backend.CostConnection)
	}
}

// survive recovers from a panic that bytes of one connection have caused, so that the
// server goes on.
func (l *Link) survive() {
	if p := recover(); p != nil {
		l.proxy.log.Error("panic while serving a sandbox's connection", "panic", p, "stack", string(debug.Stack()))
	}
}

// enter registers a connection from the sandbox. If a cap refuses it, enter returns the
// reason.
func (l *Link) enter(c net.Conn) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return "the sandbox is gone"
	case l.busy >= l.proxy.caps.Conns:
		return "too many connections at once"
	case !l.arrivals.take(l.proxy.now()):
		return "too many connections a second"
	case l.proxy.busy.Add(1) > int64(l.proxy.caps.All) && l.busy >= l.proxy.caps.Own:
		l.proxy.busy.Add(-1)
		return "too many connections at once, of all sandboxes together"
	}
	l.busy++
	l.open[c] = true
	return ""
}

func (l *Link) leave(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	l.proxy.busy.Add(-1)
	delete(l.open, c)
}

// outcome is the result of track.
type outcome int

const (
	kept    outcome = iota
	late            // the link is closed
	changed         // Review was called after the decision
)

// track registers a connection to a host, so that Close and Review can close it. If the
// outcome is not kept, track has closed the connection. The caller ends a kept one with
// untrack.
func (l *Link) track(v *visit, c net.Conn) outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		_ = c.Close()
		return late
	case l.round != v.round:
		_ = c.Close()
		return changed
	}
	l.open[c], l.out[c] = true, v
	return kept
}

func (l *Link) untrack(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	delete(l.out, c)
}

// Review ends the connections for which keep returns false. Connections that are being
// dialled are decided again. The caller calls it when the sandbox goes on with other
// open domains, after the policy has them.
func (l *Link) Review(keep func(Ask) bool) {
	l.mu.Lock()
	l.round++
	l.mu.Unlock()
	l.Cut(keep)
}

// Cut ends the connections for which keep returns false, because their domain was closed
// or has expired, and those to hosts that may no longer have a special address.
func (l *Link) Cut(keep func(Ask) bool) {
	l.mu.Lock()
	out := maps.Clone(l.out)
	l.mu.Unlock()
	for c, v := range out {
		e := Entry{Host: string(v.ask.Host), Port: v.ask.Port, Via: v.ask.Via}
		switch ask := v.ask; {
		case !keep(ask):
			e.Reason, e.Denial = "it is not open any more, and a connection to it was ended", sandboxmcp.DenialClosed
		case v.private && !l.proxy.dial.mayBePrivate(ask.Host, ask.Port):
			e.Reason = "egress_private_hosts does not list it any more, and a connection to it was ended"
		default:
			continue
		}
		l.ledger.deny(e)
		reset(c)
		reset(v.c)
	}
}

// now returns the current round, which a new decision belongs to.
func (l *Link) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.round
}

// aim returns the destination of a connection for a report: the name that its address
// represents, or the address.
func (l *Link) aim(c net.Conn) string {
	a, ok := local(c)
	if !ok {
		return "unknown"
	}
	if h, ok := l.names.name(a); ok {
		return string(h)
	}
	return a.String()
}

// local returns the address that the program connected to.
func local(c net.Conn) (netip.Addr, bool) {
	if c.LocalAddr() == nil {
		return netip.Addr{}, false
	}
	ap, err := netip.ParseAddrPort(c.LocalAddr().String())
	return ap.Addr().Unmap(), err == nil
}

// reset closes a connection by a TCP reset, which the other side sees as an error and
// not as the end of the data.
func reset(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// bucket is a token bucket: rate tokens per second, and twice as many in a burst.
type bucket struct {
	rate float64

	mu   sync.Mutex
	have float64
	at   time.Time
}

func newBucket(perSecond int) *bucket {
	return &bucket{rate: float64(perSecond), have: 2 * float64(perSecond)}
}

func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.have = min(b.have+b.rate*now.Sub(b.at).Seconds(), 2*b.rate)
	}
	b.at = now
	if b.have < 1 {
		return false
	}
	b.have--
	return true
}

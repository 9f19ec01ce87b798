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

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Link serves the sockets of one sandbox. Its methods may be called by several
// goroutines.
type Link struct {
	proxy     *Proxy
	policy    Policy
	names     *names
	ledger    *ledger
	questions *bucket
	arrivals  *bucket
	effort    *backend.Effort // of the server for the sandbox

	ctx    context.Context //nolint:containedctx // it is the link's life, which Close ends
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	served map[io.Closer]bool  // the sandbox's sockets
	open   map[net.Conn]bool   // connections, both ends
	out    map[net.Conn]*visit // those to the outside, and whose they are
	round  int                 // how often there was a review
	busy   int                 // connections from the sandbox
	wg     sync.WaitGroup

	refusals sync.Mutex // held while refused is asked and counted
	refused  func() ([]backend.Refusal, int)
}

func newLink(p *Proxy, policy Policy, effort *backend.Effort) *Link {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // a link lives until Close, and longer than any call
	return &Link{
		proxy: p, policy: policy, effort: effort, ctx: ctx, cancel: cancel,
		names: newNames(p.caps.Names), ledger: &ledger{max: p.caps.Entries},
		questions: newBucket(p.caps.Questions), arrivals: newBucket(p.caps.PerSecond),
		served: map[io.Closer]bool{}, open: map[net.Conn]bool{}, out: map[net.Conn]*visit{},
	}
}

// Serve begins to serve what is in n and is not served yet. It is called again
// when n has more; on a link that is closed it closes them.
func (l *Link) Serve(n *backend.Network) {
	l.refusals.Lock()
	l.refused = n.Refused // the same of every call
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

// Report tells what was let through and what was refused, by the sandbox's kernel
// too. With reset it begins anew; a count of bytes that are under way goes to the
// next.
func (l *Link) Report(reset bool) Report {
	l.countRefused()
	return l.ledger.report(reset)
}

// countRefused counts what the sandbox's kernel has refused because nobody
// listens there.
func (l *Link) countRefused() {
	l.refusals.Lock()
	defer l.refusals.Unlock()
	if l.refused == nil {
		return
	}
	list, lost := l.refused()
	for _, r := range list {
		a := r.Address.Addr().Unmap()
		if a.IsLoopback() { // a server of the sandbox's own that is not there
			continue
		}
		e := Entry{Host: a.String(), Port: int(r.Address.Port()), Times: r.Count, Via: ViaTCP, Reason: "the port is not open"}
		if h, ok := l.names.name(a); ok {
			e.Host = string(h)
		}
		if r.Network == "udp" {
			e.Via, e.Reason = ViaUDP, "nothing but TCP leaves a sandbox"
		}
		l.ledger.deny(e)
	}
	l.ledger.denyOthers(lost)
}

// Close closes the sockets and every connection, ends what waits for a decision,
// and returns when nothing of the link runs any more. It may be called more than
// once.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.cancel()
	for s := range l.served {
		_ = s.Close() // a socket that is closed already is what is wanted
	}
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// accept hands the connections of a listener to serve, each in a goroutine, as
// far as the caps allow.
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

// survive keeps a fault that hostile bytes have found to their connection.
func (l *Link) survive() {
	if p := recover(); p != nil {
		l.proxy.log.Error("a connection of a sandbox met a fault", "panic", p, "stack", string(debug.Stack()))
	}
}

// enter takes a connection of the sandbox, or says why not.
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
	case l.proxy.busy.Add(1) > int64(l.proxy.caps.All):
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

// outcome is what became of a connection that was made.
type outcome int

const (
	kept    outcome = iota
	late            // the link is closed
	changed         // what is open has changed since it was decided
)

// track makes Close and Review close a connection to the outside that was decided
// in the round of v. One that is not kept is closed. It is given up by untrack.
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

// Review looks at what was decided before: it ends the connections that keep does
// not want any more, and those that are being made are decided anew. It is called
// when another has to be content with what is open, after the policy knows.
func (l *Link) Review(keep func(Ask) bool) {
	l.mu.Lock()
	l.round++
	l.mu.Unlock()
	l.Cut(keep)
}

// Cut ends the connections that keep does not want any more, because what let them
// through was closed or has lapsed.
func (l *Link) Cut(keep func(Ask) bool) {
	l.mu.Lock()
	out := maps.Clone(l.out)
	l.mu.Unlock()
	for c, v := range out {
		if ask := v.ask; !keep(ask) {
			l.ledger.deny(Entry{Host: string(ask.Host), Port: ask.Port, Via: ask.Via, Reason: "it is not open any more, and a connection to it was ended"})
			reset(c)
			reset(v.c)
		}
	}
}

// now is the round that a decision belongs to.
func (l *Link) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.round
}

// aim says, for a report, what a connection was aimed at: the name that the
// address stands for, or the address.
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

// local returns the address that the program asked for.
func local(c net.Conn) (netip.Addr, bool) {
	if c.LocalAddr() == nil {
		return netip.Addr{}, false
	}
	ap, err := netip.ParseAddrPort(c.LocalAddr().String())
	return ap.Addr().Unmap(), err == nil
}

// reset closes a connection so that the other side learns of a refusal, not of
// an end.
func reset(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// bucket lets through so many a second, and twice as many at once.
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

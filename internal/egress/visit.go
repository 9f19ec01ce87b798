package egress

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// visit is a connection from a program in the sandbox.
type visit struct {
	l    *Link
	c    net.Conn
	in   *patient
	br   *bufio.Reader   // reads from in
	host sandboxmcp.Host // empty: not known yet
	aim  string          // destination for the report while no host is known
	port int
	up   net.Conn // connection to the host, if it was made before the program's first bytes

	round int // Link.round at the latest decision
	ask   Ask // of the latest decision

	private bool // the connection to the host may have a special address
}

func (l *Link) newVisit(c net.Conn, port int) *visit {
	v := &visit{l: l, c: c, in: &patient{Conn: c, effort: l.effort}, aim: l.aim(c), port: port}
	v.br = bufio.NewReaderSize(v.in, 4<<10)
	if a, ok := local(c); ok {
		v.host, _ = l.names.name(a)
	}
	v.headDeadline()
	return v
}

// headDeadline sets the deadline for the program's ClientHello or request head.
func (v *visit) headDeadline() { _ = v.c.SetReadDeadline(time.Now().Add(v.l.proxy.caps.Head)) }

// servePort serves a connection to a port, at any address.
func (l *Link) servePort(c net.Conn, port int) {
	v := l.newVisit(c, port)
	if a, ok := local(c); ok && v.host == "" && stands.Contains(a) {
		v.deny(ViaTCP, "no name has this address")
		reset(c)
		return
	}
	v.speak()
}

// speak serves the connection by the protocol of its port.
func (v *visit) speak() {
	switch v.port {
	case 80:
		v.http()
	case 443:
		v.tls()
	default:
		v.guess()
	}
}

// notOpen is the reason of a refusal for which the policy gives none.
const notOpen = "it is not open"

// closedIfUnsaid returns the verdict with a reason, if it is a refusal without one.
func closedIfUnsaid(v Verdict) Verdict {
	if !v.Allowed && v.Reason == "" {
		v.Reason, v.Denial = notOpen, sandboxmcp.DenialClosed
	}
	return v
}

// deny counts a refusal of the connection's host.
func (v *visit) deny(via Via, reason string) { v.denyHost(string(v.host), via, reason) }

func (v *visit) denyHost(host string, via Via, reason string) {
	v.refused(Entry{Host: host, Via: via, Reason: reason})
}

// refused counts a refusal of a host at the port of the connection.
func (v *visit) refused(e Entry) {
	e.Host, e.Port = cmp.Or(e.Host, v.aim), v.port
	v.l.ledger.deny(e)
}

// decide asks the policy and counts a refusal. If the program closes the connection
// meanwhile, the context of the question ends.
func (v *visit) decide(via Via) Verdict {
	ctx, cancel := context.WithCancel(v.l.ctx)
	defer cancel()
	defer v.watch(cancel, via == ViaTCP)()
	v.round, v.ask = v.l.now(), Ask{Host: v.host, Port: v.port, Via: via}
	verdict := closedIfUnsaid(v.l.policy.Decide(ctx, v.ask))
	if !verdict.Allowed {
		v.refused(Entry{Host: string(v.host), Via: via, Rule: verdict.Rule, Reason: verdict.Reason, Denial: verdict.Denial})
	}
	return verdict
}

// watch calls gone when the program closes the connection, until stop is called. The
// caller may not read from the connection meanwhile. With half, a program that closes
// only its sending side does not count as gone.
func (v *visit) watch(gone func(), half bool) (stop func()) {
	done := make(chan struct{})
	_ = v.c.SetReadDeadline(time.Time{})
	v.in.allow(0)
	go func() {
		defer close(done)
		v.leaving(gone, half)
	}()
	return func() {
		_ = v.c.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = v.c.SetReadDeadline(time.Time{})
	}
}

// leaving reads ahead into the buffer until the program closes the connection, and then
// calls gone. It returns without calling gone if the buffer is full or the read
// deadline passes.
func (v *visit) leaving(gone func(), half bool) {
	for {
		_, err := v.br.Peek(v.br.Buffered() + 1)
		switch {
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull), isTimeout(err), half && errors.Is(err, io.EOF):
			return
		default:
			gone()
			return
		}
	}
}

// closedError is a refusal of the policy.
type closedError struct{ verdict Verdict }

func (e closedError) Error() string { return e.verdict.Reason }

// dial connects to the host after the policy has allowed it. If the policy refuses the
// host by the time the connection is made, the error is a closedError. The caller closes
// the connection with untrack.
func (v *visit) dial(via Via, verdict Verdict) (net.Conn, error) {
	for {
		up, private, err := v.l.proxy.dial.connect(withEffort(v.l.ctx, v.l.effort), v.host, v.port)
		v.private = private
		if err != nil {
			v.l.proxy.log.Debug("dial for a sandbox", "host", v.host, "port", v.port, "error", err)
			if b, ok := errors.AsType[*BlockedError](err); ok {
				v.refused(Entry{Host: string(v.host), Via: via, Reason: "its address is " + b.What, Denial: sandboxmcp.DenialAddress})
				return nil, err
			}
			v.l.ledger.allow(v.ask, verdict.Rule)
			v.l.ledger.fail(v.ask, Unreachable(err))
			return nil, err
		}
		giveUp(up, v.l.proxy.caps.Idle)
		switch v.l.track(v, up) {
		case kept:
			v.l.ledger.allow(v.ask, verdict.Rule)
			return up, nil
		case late:
			return nil, net.ErrClosed
		case changed:
			if verdict = v.decide(via); !verdict.Allowed {
				return nil, closedError{verdict}
			}
		}
	}
}

// open asks the policy and dials. It returns nil if the host is refused or not reached;
// both are counted.
func (v *visit) open(via Via) net.Conn {
	if v.up != nil {
		return v.up
	}
	verdict := v.decide(via)
	if !verdict.Allowed {
		return nil
	}
	up, err := v.dial(via, verdict)
	if err != nil {
		return nil
	}
	return up
}

// tls relays a TLS connection whose server name is the host.
func (v *visit) tls() {
	first, ok := v.hello()
	if !ok {
		return
	}
	up := v.open(ViaTLS)
	if up == nil {
		v.alert()
		return
	}
	defer v.l.untrack(up)
	if v.greet(up, first) {
		v.relay(up)
	}
}

// alert refuses the connection by a TLS alert.
func (v *visit) alert() {
	_, _ = v.c.Write(denied)
	v.linger()
}

// hello reads a ClientHello and checks that its server name is the host. If the host is
// not known, the server name becomes the host. A refused connection is counted and
// closed.
func (v *visit) hello() (raw []byte, ok bool) {
	h, err := readHello(v.l.ctx, v.br)
	v.l.chargeHead(len(h.raw))
	if err != nil {
		if len(h.raw) == 0 {
			return nil, false // the program sent nothing: not a request
		}
		reason := "what was sent is not TLS"
		if isTimeout(err) {
			reason = "no ClientHello came in time"
		}
		v.deny(ViaTLS, reason)
		if h.raw[0] == 0x16 {
			v.alert()
		}
		reset(v.c)
		return nil, false
	}
	name, err := sandboxmcp.ParseHost(h.name)
	switch {
	case h.name == "":
		v.deny(ViaTLS, "the ClientHello has no server name")
	case err != nil:
		v.denyHost(h.name, ViaTLS, "the server name is not a host name")
	case v.host != "" && name != v.host:
		v.denyHost(string(name), ViaTLS, "the connection is for "+string(v.host)+", but the server name is another")
	case h.ech:
		v.denyHost(string(name), ViaTLS, "the server name is encrypted (ECH)")
	default:
		v.host = name
		return h.raw, true
	}
	v.alert()
	return nil, false
}

// relay copies in both directions until both have ended. It first sends the host the bytes
// that were already read from the program.
func (v *visit) relay(up net.Conn) {
	v.relayAfter(up, nil, func(*flow) error { return nil })
}

// relayAfter is like relay, but calls begin before it copies from the program; an error
// of begin ends the connection. banner is data from the host that was read already.
func (v *visit) relayAfter(up net.Conn, banner []byte, begin func(*flow) error) {
	_ = v.c.SetDeadline(time.Time{})
	f := v.l.newFlow()
	back := make(chan error, 1)
	end := func(err error) {
		if err == nil {
			return
		}
		if errors.Is(err, errBytes) {
			v.deny(ViaTCP, errBytes.Error())
		}
		// Resetting both connections also ends the copy in the other direction.
		reset(v.c)
		reset(up)
	}
	go func() {
		f.count(int64(len(banner)))
		_, err := v.c.Write(banner)
		if err == nil {
			err = f.copy(v.c, up, -1)
		}
		if err == nil {
			closeWrite(v.c)
		}
		end(err)
		back <- err
	}()
	err := begin(f)
	if err == nil {
		err = v.drain(f, up)
	}
	if err == nil {
		err = f.copy(up, v.c, -1)
	}
	if err == nil {
		closeWrite(up)
	}
	end(err)
	if err = <-back; err != nil {
		v.l.proxy.log.Debug("relay", "host", v.host, "port", v.port, "error", err)
	}
}

// drain sends the program's bytes that are in the buffer to the host.
func (v *visit) drain(f *flow, up net.Conn) error {
	n := v.br.Buffered()
	if n == 0 {
		return nil
	}
	f.count(int64(n))
	if _, err := io.CopyN(up, v.br, int64(n)); err != nil {
		return fmt.Errorf("send on: %w", err)
	}
	return nil
}

// place formats a host and port for texts.
func place(h sandboxmcp.Host, port int) string { return string(h) + ":" + strconv.Itoa(port) }

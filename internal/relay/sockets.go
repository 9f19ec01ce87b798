package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// uses counts the calls that use a descriptor. Lists that wait for a descriptor end before it is closed:
// its number may be another's then.
type uses struct {
	mu    sync.Mutex
	shut  bool
	calls sync.WaitGroup
}

// begin returns false after end.
func (u *uses) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.shut {
		u.calls.Add(1)
	}
	return !u.shut
}

func (u *uses) done() { u.calls.Done() }

// end makes begin return false. It returns false if that was done before.
func (u *uses) end() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := !u.shut
	u.shut = true
	return first
}

// wait waits for the calls that have begun. Their waits have to be stopped first.
func (u *uses) wait() { u.calls.Wait() }

// deadline ends the waits for a socket, at a time or for good.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed chan struct{} // closed when it has passed
	shut   bool
}

func newDeadline() *deadline { return &deadline{passed: make(chan struct{})} }

// set sets the time. The zero time means no deadline.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return
	}
	if d.timer != nil && !d.timer.Stop() {
		<-d.passed
	}
	d.timer = nil
	select {
	case <-d.passed:
		d.passed = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	passed := d.passed
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(passed) })
		return
	}
	close(passed)
}

// end ends it for good. Later calls have no effect.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return
	}
	d.shut = true
	if d.timer != nil && !d.timer.Stop() {
		<-d.passed
	}
	select {
	case <-d.passed:
	default:
		close(d.passed)
	}
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

// reason returns why a wait was stopped.
func (d *deadline) reason() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return net.ErrClosed
	}
	return os.ErrDeadlineExceeded
}

// stopped converts the error of a wait.
func (d *deadline) stopped(err error) error {
	switch {
	case errors.Is(err, errStopped):
		return d.reason()
	case errors.Is(err, errGone):
		return net.ErrClosed
	default:
		return err
	}
}

// socket is a connection of a program, or to one.
type socket struct {
	c             *conn
	fd            int
	local, remote *net.TCPAddr
	reads, writes *deadline
	use           uses
	writing       sync.Mutex
}

func newSocket(c *conn, fd int, local, remote netip.AddrPort) *socket {
	return &socket{c: c, fd: fd, local: net.TCPAddrFromAddrPort(local), remote: net.TCPAddrFromAddrPort(remote), reads: newDeadline(), writes: newDeadline()}
}

// Read reads from the connection.
func (s *socket) Read(p []byte) (int, error) {
	if !s.use.begin() {
		return 0, s.wrap("read", net.ErrClosed)
	}
	defer s.use.done()
	n, err := s.c.readSome(s.reads.wait(), s.fd, p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, s.wrap("read", s.reads.stopped(err))
}

// Write writes to the connection.
func (s *socket) Write(p []byte) (n int, err error) {
	if !s.use.begin() {
		return 0, s.wrap("write", net.ErrClosed)
	}
	defer s.use.done()
	s.writing.Lock()
	defer s.writing.Unlock()
	for n < len(p) {
		some, err := s.c.writeSome(s.writes.wait(), s.fd, p[n:])
		n += some
		if err != nil {
			return n, s.wrap("write", s.writes.stopped(err))
		}
	}
	return n, nil
}

func (s *socket) wrap(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.local, Addr: s.remote, Err: err}
}

// Close closes the connection.
func (s *socket) Close() error {
	if !s.use.end() {
		return net.ErrClosed
	}
	s.reads.end()
	s.writes.end()
	s.use.wait()
	s.c.drop(s.fd)
	return nil
}

// CloseWrite ends the direction to the program.
func (s *socket) CloseWrite() error {
	if !s.use.begin() {
		return s.wrap("close", net.ErrClosed)
	}
	defer s.use.done()
	l := s.c.list()
	l.do("shutdown", num(s.fd), num(shutWrite))
	_, err := s.c.run(l)
	return err
}

// SetLinger with 0 makes Close reset the connection.
func (s *socket) SetLinger(sec int) error {
	if !s.use.begin() {
		return s.wrap("set", net.ErrClosed)
	}
	defer s.use.done()
	l := s.c.list()
	on := uint32(1)
	if sec < 0 {
		on = 0
	}
	l.do("setsockopt", num(s.fd), num(optSocket), num(optLinger), l.bytes(words(on, uint32(max(sec, 0)))), num(8))
	_, err := s.c.run(l)
	return err
}

// LocalAddr is the address that the program connected to.
func (s *socket) LocalAddr() net.Addr { return s.local }

// RemoteAddr is the program's address.
func (s *socket) RemoteAddr() net.Addr { return s.remote }

// SetDeadline sets both deadlines.
func (s *socket) SetDeadline(t time.Time) error {
	s.reads.set(t)
	s.writes.set(t)
	return nil
}

// SetReadDeadline sets the deadline of reads.
func (s *socket) SetReadDeadline(t time.Time) error { s.reads.set(t); return nil }

// SetWriteDeadline sets the deadline of writes.
func (s *socket) SetWriteDeadline(t time.Time) error { s.writes.set(t); return nil }

// address reads a struct sockaddr_in.
func address(b []byte) netip.AddrPort {
	if len(b) < 16 || binary.LittleEndian.Uint16(b) != inet {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:]))
}

// listener accepts connections on a port.
type listener struct {
	c     *conn
	fd    int
	port  int
	limit *deadline
	use   uses
	early bool // its socket was made before any program ran
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	if !l.use.begin() {
		return nil, l.wrap(net.ErrClosed)
	}
	defer l.use.done()
	for {
		q := l.c.after(l.fd, pollIn)
		q.size = 160
		q.store(answer(64), num(16))
		fd := q.do("accept4", num(l.fd), answer(0), answer(64), num(sockFlags))
		q.store(answer(144), num(16))
		q.do("getsockname", result(fd), answer(80), answer(144))
		r, err := l.c.wait(l.limit.wait(), q, nil)
		if err == nil {
			err = r.check(q)
		}
		own, none := r.value(fd)
		switch {
		case err == nil && len(r.bytes) >= 96:
			return newSocket(l.c, own, address(r.bytes[80:96]), address(r.bytes[:16])), nil
		case err == nil:
			err = errGone
		case none == nil && !errors.Is(err, errGone): // it was accepted, and has no address any more
			l.c.drop(own)
			l.c.effort.Pace(backend.CostPiece)
			continue
		case errors.Is(err, syscall.EAGAIN):
			l.c.effort.Pace(backend.CostPiece)
			continue
		}
		return nil, l.wrap(l.limit.stopped(err))
	}
}

func (l *listener) wrap(err error) error {
	return &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: err}
}

// Close closes the listener.
func (l *listener) Close() error {
	if !l.use.end() {
		return net.ErrClosed
	}
	l.limit.end()
	l.use.wait()
	l.c.drop(l.fd)
	return nil
}

// Addr is the listener's port.
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: l.port} }

// packets is a socket of UDP.
type packets struct {
	c     *conn
	fd    int
	reads *deadline
	use   uses
}

func newPackets(c *conn, fd int) *packets { return &packets{c: c, fd: fd, reads: newDeadline()} }

// ReadFrom reads a packet.
func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	if !p.use.begin() {
		return 0, nil, &net.OpError{Op: "read", Net: "udp", Err: net.ErrClosed}
	}
	defer p.use.done()
	size := min(len(b), dnsMessage)
	for {
		l := p.c.after(p.fd, pollIn)
		l.size = dnsMessage + 80
		l.store(answer(dnsMessage+64), num(16))
		got := l.do("recvfrom", num(p.fd), answer(0), num(size), num(noWait), answer(dnsMessage), answer(dnsMessage+64))
		r, err := p.c.wait(p.reads.wait(), l, nil)
		if err == nil {
			err = r.check(l)
		}
		if errors.Is(err, syscall.EAGAIN) {
			p.c.effort.Pace(backend.CostPiece)
			continue
		}
		if err != nil {
			return 0, nil, &net.OpError{Op: "read", Net: "udp", Err: p.reads.stopped(err)}
		}
		n := int(r.results[got])
		if n > size || len(r.bytes) < dnsMessage+16 {
			return 0, nil, errGone
		}
		return copy(b, r.bytes[:n]), net.UDPAddrFromAddrPort(address(r.bytes[dnsMessage : dnsMessage+16])), nil
	}
}

// WriteTo sends a packet.
func (p *packets) WriteTo(b []byte, to net.Addr) (int, error) {
	a, ok := to.(*net.UDPAddr)
	if !ok || a.IP.To4() == nil {
		return 0, fmt.Errorf("%v has asked nothing here", to)
	}
	if !p.use.begin() {
		return 0, net.ErrClosed
	}
	defer p.use.done()
	l := p.c.list()
	l.do("sendto", num(p.fd), l.bytes(b), num(len(b)), num(noWait), l.bytes(sockaddr([4]byte(a.IP.To4()), a.Port)), num(16))
	if _, err := p.c.run(l); err != nil {
		return 0, p.reads.stopped(err)
	}
	return len(b), nil
}

// Close closes the socket.
func (p *packets) Close() error {
	if !p.use.end() {
		return net.ErrClosed
	}
	p.reads.end()
	p.use.wait()
	p.c.drop(p.fd)
	return nil
}

// LocalAddr is the resolver's address.
func (*packets) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: dnsPort} }

// SetDeadline sets both deadlines.
func (p *packets) SetDeadline(t time.Time) error { p.reads.set(t); return nil }

// SetReadDeadline sets the deadline of reads.
func (p *packets) SetReadDeadline(t time.Time) error { p.reads.set(t); return nil }

// SetWriteDeadline has no effect: a packet is sent at once or not.
func (*packets) SetWriteDeadline(time.Time) error { return nil }

// dial connects to an address of IPv4 from inside the container.
func (s *Sandbox) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if err := s.live(); err != nil {
		return nil, errGone
	}
	own, err := s.connect(to)
	if own < 0 {
		return nil, err
	}
	if errors.Is(err, syscall.EINPROGRESS) {
		err = s.connected(ctx.Done(), own)
	}
	if errors.Is(err, errStopped) {
		err = ctx.Err()
	}
	if err != nil {
		s.c.drop(own)
		if errors.Is(err, errGone) || ctx.Err() != nil {
			return nil, err
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: os.NewSyscallError("connect", err)}
	}
	return newSocket(s.c, own, netip.AddrPortFrom(to.Addr(), 0), to), nil
}

// connect makes a socket and begins to connect it. It returns -1 if there is no socket, and otherwise the error of the
// connection: EINPROGRESS if that is not known yet.
func (s *Sandbox) connect(to netip.AddrPort) (fd int, err error) {
	l := s.c.list()
	own := l.do("socket", num(inet), num(stream|sockFlags), num(0))
	begun := l.try("connect", result(own), l.bytes(sockaddr(to.Addr().As4(), int(to.Port()))), num(16))
	r, err := s.c.run(l)
	if err != nil {
		return -1, err
	}
	_, err = r.value(begun)
	return int(r.results[own]), err
}

// connected waits until a connection is made or has failed. If stop is closed first, it fails with errStopped.
func (s *Sandbox) connected(stop <-chan struct{}, fd int) error {
	l := s.c.after(fd, pollOut)
	l.size = 16
	l.store(answer(8), num(4))
	l.do("getsockopt", num(fd), num(optSocket), num(optError), answer(0), answer(8))
	r, err := s.c.wait(stop, l, nil)
	if err == nil {
		err = r.check(l)
	}
	if err == nil && len(r.bytes) < 4 {
		err = errGone
	}
	if err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint32(r.bytes); n != 0 {
		return failure(int(n))
	}
	return nil
}

// Reaches reports whether the container reaches an address of IPv4 over its own network, without the server's. The
// container has patience to connect once it has begun: the time that a busy relay takes to begin, and to tell the end,
// does not count. Reaches fails if it cannot say.
func (s *Sandbox) Reaches(ctx context.Context, to netip.AddrPort, patience time.Duration) (bool, error) {
	if err := s.live(); err != nil {
		return false, errGone
	}
	own, err := s.connect(to)
	if own < 0 {
		return false, err
	}
	defer s.c.drop(own)
	if errors.Is(err, syscall.EINPROGRESS) {
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err = s.connected(short.Done(), own)
	}
	if errors.Is(err, errStopped) { // the connection may be made, and the relay has not said so
		l := s.c.list()
		l.size = 24
		l.store(answer(16), num(16))
		peer := l.try("getpeername", num(own), answer(0), answer(16))
		var r reply
		if r, err = s.c.run(l); err != nil {
			return false, err
		}
		_, err = r.value(peer)
	}
	if errors.Is(err, errGone) {
		return false, err
	}
	return err == nil, ctx.Err()
}

// rootQuestion asks a DNS server for the name servers of the root, which each one knows. RFC 1035, section 4.1.
var rootQuestion = []byte{0x5a, 0x5a, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1}

// Resolves reports whether the container gets an answer from a DNS server at an address of IPv4, by UDP over its own network. As
// with Reaches, the container has patience once it has asked.
func (s *Sandbox) Resolves(ctx context.Context, by netip.AddrPort, patience time.Duration) (bool, error) {
	if err := s.live(); err != nil {
		return false, errGone
	}
	l := s.c.list()
	socket := l.do("socket", num(inet), num(datagram|sockFlags), num(0))
	l.try("connect", result(socket), l.bytes(sockaddr(by.Addr().As4(), int(by.Port()))), num(16))
	asked := l.try("write", result(socket), l.bytes(rootQuestion), num(len(rootQuestion)))
	r, err := s.c.run(l)
	if err != nil {
		return false, err
	}
	own := int(r.results[socket])
	defer s.c.drop(own)
	if _, err = r.value(asked); err != nil { // such as without a route; no answer can come
		return false, ctx.Err()
	}
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	one := make([]byte, 1)
	n, err := s.c.readSome(short.Done(), own, one)
	if errors.Is(err, errStopped) { // the answer may be there, and the relay has not said so
		l = s.c.list()
		l.size = len(one)
		got := l.try("read", num(own), answer(0), num(len(one)))
		if r, err = s.c.run(l); err == nil {
			n, _ = r.value(got)
		}
	}
	if errors.Is(err, errGone) {
		return false, err
	}
	return n > 0, ctx.Err()
}

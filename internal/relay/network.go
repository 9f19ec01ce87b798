package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

const (
	dnsPort  = 53
	maxPorts = 32 // of one sandbox

	inet       = 2
	stream     = 1
	datagram   = 2
	sockFlags  = openNonblock | openCloexec
	backlog    = 64
	optSocket  = 1
	optReuse   = 2
	optError   = 4
	optLinger  = 13
	shutWrite  = 1
	noWait     = 0x40 | 0x4000 // MSG_DONTWAIT and MSG_NOSIGNAL
	dnsMessage = 4096
)

// loop is the address of loopback.
var loop = [4]byte{127, 0, 0, 1}

// network is the network of a sandbox. Its sockets are the relay's; the server accepts their
// connections over the stream and decides about them as in any other sandbox.
type network struct {
	opening sync.Mutex // held while sockets are opened

	mu     sync.Mutex
	at     [4]byte     // where sockets of TCP ports listen
	unable error       // why no network can be opened; nil: it can
	bound  map[int]int // sockets of TCP ports that do not listen yet
	dns    int
	dnsTCP int
	over   bool
	leads  bool // a connection may lead out
	out    *backend.Network
}

// addresses gives the container's loopback the addresses that represent names (package egress) and all
// others, as far as the relay may. It takes the ports of the server before a program can. If the runtime
// refuses them, the sandbox has no network.
func (s *Sandbox) addresses() error {
	n := &s.network
	n.bound = map[int]int{}
	var err error
	if s.standing.shared { // it cannot make addresses: programs use the proxy
		n.at = loop
	} else {
		err = s.newAddress([4]byte{198, 18, 0, 1}, 15)
	}
	for prefix := byte(1); prefix <= 8; prefix++ { // all other addresses, so that attempts reach the server
		if err == nil && !s.standing.shared && !s.cfg.Routed {
			// 128/1, 64/2, … and 1/8: Linux makes no route for 0/1.
			err = s.newAddress([4]byte{1 << (8 - prefix), 0, 0, 1}, prefix)
		}
	}
	bind := func(kind int, addr [4]byte, port int) int {
		fd := -1
		if err == nil {
			fd, err = s.bind(kind, addr, port, false)
		}
		return fd
	}
	n.dns, n.dnsTCP = bind(datagram, loop, dnsPort), bind(stream, loop, dnsPort)
	n.bound[backend.ProxyPort] = bind(stream, loop, backend.ProxyPort)
	for _, port := range []int{80, 443} {
		n.bound[port] = bind(stream, n.at, port)
	}
	if errors.Is(err, errGone) {
		return err
	}
	n.unable = err
	return nil
}

// newAddress gives loopback an address, with all others of its prefix.
func (s *Sandbox) newAddress(addr [4]byte, prefix byte) error {
	const (
		newAddr = 20
		flags   = 1 | 4 | 0x400 // request, acknowledge, create
		local   = 2
		address = 1
	)
	b := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint32(nil, 16+8+16), newAddr)
	b = binary.LittleEndian.AppendUint16(b, flags)
	b = append(b, words(1, 0)...)
	b = append(b, inet, prefix, 0, 0, 1, 0, 0, 0) // interface 1 is loopback
	for _, kind := range []byte{local, address} {
		b = append(append(b, 8, 0, kind, 0), addr[:]...)
	}
	l := s.c.list()
	l.size = 256
	fd := l.do("socket", num(familyNetlink), num(3|openCloexec), num(0))
	l.do("write", result(fd), l.bytes(b), num(len(b)))
	got := l.do("recvfrom", result(fd), answer(0), num(256), num(0x40), num(0), num(0))
	l.finally("close", result(fd))
	r, err := s.c.run(l)
	if err != nil {
		return err
	}
	const kindError = 2
	if r.results[got] < 20 || len(r.bytes) < 20 || binary.LittleEndian.Uint16(r.bytes[4:]) != kindError {
		return errors.New("the container's kernel did not answer")
	}
	if code := int32(binary.LittleEndian.Uint32(r.bytes[16:])); code != 0 {
		return failure(int(-code))
	}
	return nil
}

// sockaddr encodes an address of IPv4.
func sockaddr(addr [4]byte, port int) []byte {
	b := append([]byte{inet, 0}, byte(port>>8), byte(port))
	return append(append(b, addr[:]...), make([]byte, 8)...)
}

// bind makes a socket of a port. With reuse, its former connections need not have ended. A program could
// bind the port as well until the socket listens, so a socket that listens later is made without.
func (s *Sandbox) bind(kind int, addr [4]byte, port int, reuse bool) (int, error) {
	l := s.c.list()
	fd := l.do("socket", num(inet), num(kind|sockFlags), num(0))
	if reuse {
		l.do("setsockopt", result(fd), num(optSocket), num(optReuse), l.bytes(words(1)), num(4))
	}
	l.do("bind", result(fd), l.bytes(sockaddr(addr, port)), num(16))
	r, err := s.c.run(l)
	if err != nil {
		if v, bad := r.value(fd); bad == nil {
			s.c.drop(v)
		}
		return -1, err
	}
	return int(r.results[fd]), nil
}

// Network opens the missing sockets.
func (s *Sandbox) Network(ctx context.Context, ports []int) (*backend.Network, error) {
	for _, p := range ports {
		if p < 1 || p > 65535 || p == dnsPort || p == backend.ProxyPort {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "port %d cannot be opened: a port is 1 to 65535, and %d and %d are the sandbox's resolver and proxy", p, dnsPort, backend.ProxyPort)
		}
	}
	return s.openNetwork(ctx, append([]int{80, 443}, ports...), true)
}

// Refuse opens the sockets of a network that leads nowhere.
func (s *Sandbox) Refuse(ctx context.Context) (*backend.Network, error) {
	return s.openNetwork(ctx, nil, false)
}

// BeforeSockets returns false: the container's kernel does not report new sockets.
func (*Sandbox) BeforeSockets(func()) bool { return false }

func (s *Sandbox) openNetwork(ctx context.Context, ports []int, leadOut bool) (*backend.Network, error) {
	if err := ctx.Err(); err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the network was not opened: %s", err).WithCause(err)
	}
	n := &s.network
	n.opening.Lock()
	defer n.opening.Unlock()
	n.mu.Lock()
	out, unable := n.out, n.unable
	n.mu.Unlock()
	if s.live() != nil {
		return nil, networkOver()
	}
	if unable != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the network cannot be opened: %s", unable).WithCause(unable)
	}
	var open []int
	if out != nil {
		open = slices.Collect(maps.Keys(out.TCP))
	}
	all := slices.Concat(open, ports)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > maxPorts {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d ports are to be open in one sandbox, and %d can", len(all), maxPorts)
	}
	more := &backend.Network{TCP: map[int]net.Listener{}, Effort: s.effort}
	slices.SortStableFunc(all, func(a, b int) int { return n.early(a) - n.early(b) })
	var err error
	for _, port := range all {
		if err == nil && !slices.Contains(open, port) {
			var l net.Listener
			if l, err = s.listen(port, n.at); err == nil {
				more.TCP[port] = l
			}
		}
	}
	if err == nil && out == nil { // last, because these sockets are made only once
		err = s.openBase(more)
	}
	if err != nil {
		n.keep(more)
		return nil, errors.Join(networkError(err), more.Close())
	}
	return n.add(more, leadOut)
}

// early returns 1 for a port that was bound before any program ran. Only opening others can fail, so they
// come first: a socket that listens and is not accepted from would keep programs waiting.
func (n *network) early(port int) int {
	if _, ok := n.bound[port]; ok {
		return 1
	}
	return 0
}

// keep takes the sockets that were made before any program ran out of a network that was not opened. No
// program gets their ports.
func (n *network) keep(more *backend.Network) {
	for port, l := range more.TCP {
		if own, ok := l.(*listener); ok && own.early {
			n.bound[port] = own.fd
			delete(more.TCP, port)
		}
	}
	more.DNS, more.DNSTCP = nil, nil // dns and dnsTCP have their descriptors
}

// add adds sockets to the open ones.
func (n *network) add(more *backend.Network, leadOut bool) (*backend.Network, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return nil, errors.Join(networkOver(), more.Close())
	}
	n.leads = n.leads || leadOut
	if n.out == nil {
		n.out = more
	} else {
		maps.Copy(n.out.TCP, more.TCP)
	}
	return n.out, nil
}

// openBase opens the resolver and the proxy.
func (s *Sandbox) openBase(out *backend.Network) error {
	n := &s.network
	out.DNS = []net.PacketConn{newPackets(s.c, n.dns)}
	tcp, err := s.listenOn(n.dnsTCP, dnsPort)
	if err != nil {
		return err
	}
	out.DNSTCP = []net.Listener{tcp}
	out.Proxy, err = s.listen(backend.ProxyPort, loop)
	return err
}

// listen listens on a port that is bound already, or binds it.
func (s *Sandbox) listen(port int, addr [4]byte) (net.Listener, error) {
	n := &s.network
	fd, ok := n.bound[port]
	if !ok {
		var err error
		if fd, err = s.bind(stream, addr, port, true); err != nil {
			return nil, fmt.Errorf("port %d: %w", port, err)
		}
	}
	l, err := s.listenOn(fd, port)
	if err != nil {
		if !ok {
			s.c.drop(fd)
		}
		return nil, err
	}
	l.early = ok
	delete(n.bound, port)
	return l, nil
}

func (s *Sandbox) listenOn(fd, port int) (*listener, error) {
	l := s.c.list()
	l.do("listen", num(fd), num(backlog))
	if _, err := s.c.run(l); err != nil {
		return nil, err
	}
	return &listener{c: s.c, fd: fd, port: port, limit: newDeadline()}, nil
}

// close closes all sockets for good.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	_ = n.out.Close()
}

// wall returns what holds programs from the network, if it has no interface.
func (n *network) wall() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.leads:
		return sandboxmcp.WallEgress
	case n.out != nil:
		return sandboxmcp.WallToldNames // the kernel does not report what it refuses
	default:
		return sandboxmcp.WallNoNetwork
	}
}

func networkOver() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox has ended, and no network can be opened in it").WithHint("use a new one")
}

func networkError(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the network was not opened: a program listens on one of its ports: %s", err).WithCause(err).
			WithHint("end the program that listens there, or use another session; without a network nothing is open")
	case errors.Is(err, errGone), errors.Is(err, fs.ErrClosed):
		return networkOver()
	default:
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the network cannot be opened: %s", err).WithCause(err)
	}
}

package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
)

// Socket describes a socket of the server in a sandbox's network namespace.
type Socket struct {
	Port     int
	UDP      bool // false: a TCP listener
	V6       bool
	Loopback bool // bound to 127.0.0.1 or ::1; false: to every local address
	Refusals bool // a packet socket that sees connections that the kernel refuses, see ParseRefused; the other fields are ignored
}

func (w Socket) String() string {
	if w.Refusals {
		return "refusals"
	}
	network, family := "tcp", "4"
	if w.UDP {
		network = "udp"
	}
	if w.V6 {
		family = "6"
	}
	return fmt.Sprintf("%s%s port %d", network, family, w.Port)
}

// loopback is the index of the loopback device in every network namespace.
const loopback = 1

// MaxSockets is how many sockets one call of Sockets can make.
const MaxSockets = 16

// backlog is how many connections may wait to be accepted. They use memory of the
// server, and a program can fill the queue.
const backlog = 128

// HaveV6 reports whether the kernel supports IPv6.
var HaveV6 = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	closeAll(fd)
	return err == nil
})

// Sockets makes sockets in the sandbox's network namespace. It also makes every IPv4 address
// local there, so that every connection of a program reaches these sockets. It returns
// descriptors that are non-blocking, bound and listening, in the order of want; the
// caller closes them. On error it returns no socket. The error is ErrPortTaken if a
// program of the sandbox uses a port. The network namespace is not reused after this
// call. Sockets may not be called after Close.
//
// A short-lived process of the jail makes the sockets. It enters the sandbox's network
// namespace and none of its other namespaces, and runs as a user that no program has.
// No program can see, stop or signal it.
func (s *Slot) Sockets(ctx context.Context, want []Socket) ([]int, error) {
	j := s.jail
	if j.cfg.Mode == ModePlain || len(want) == 0 || len(want) > MaxSockets {
		return nil, errors.ErrUnsupported
	}
	s.mu.Lock()
	dead := s.dead
	s.sockets, s.told = true, true
	s.mu.Unlock()
	if dead {
		return nil, ErrEnded
	}
	fds, err := j.once(ctx.Done(), socketScript(want), s.gone, s.pidfd)
	switch {
	case errors.Is(err, ErrStopped):
		err = ctx.Err()
	case errors.Is(err, unix.EADDRINUSE):
		err = fmt.Errorf("%w: %w", ErrPortTaken, err)
	case err == nil && len(fds) != len(want):
		err = fmt.Errorf("got %d sockets, want %d", len(fds), len(want))
	case err == nil:
		err = s.verifySockets(fds)
	}
	if err != nil {
		closeAll(fds...)
		return nil, s.orEnded(err)
	}
	return fds, nil
}

// orEnded returns ErrEnded if the error means that init is exiting or gone: EPERM when a
// script enters its namespaces, ENOENT when it looks at them, or EACCES for an ordinary
// user. It returns any other error unchanged.
func (s *Slot) orEnded(err error) error {
	gone := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
	if gone && waitPidfd(s.pidfd, time.Second) == nil {
		return ErrEnded
	}
	return err
}

// ErrPortTaken means that a program of the sandbox uses the port.
var ErrPortTaken = errors.New("a program in the sandbox has the port")

// verifySockets fails unless the kernel confirms that the sockets are in the sandbox's
// network namespace.
func (s *Slot) verifySockets(fds []int) error {
	var want, got unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", s.PID()), &want); err != nil {
		return fmt.Errorf("look at the network namespace: %w", err)
	}
	if s.Ended() { // the process id may have been reused
		return ErrEnded
	}
	for _, fd := range fds {
		ns, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS)
		if err == nil {
			err = unix.Fstat(ns, &got)
			closeAll(ns)
		}
		if err != nil {
			return fmt.Errorf("look at a socket: %w", err)
		}
		if got.Dev != want.Dev || got.Ino != want.Ino {
			return errors.New("a socket is outside of the sandbox's network namespace")
		}
	}
	return nil
}

// socketScript returns the script that enters the network namespace of the process
// whose pidfd is passed, makes the sockets, and makes every IPv4 address local.
func socketScript(want []Socket) *script {
	s := &script{}
	s.do("enter the network namespace", unix.SYS_SETNS, passed(0), num(unix.CLONE_NEWNET))
	for _, w := range want {
		if w.Refusals {
			s.refusals()
			continue
		}
		s.socket(w)
	}
	s.everyAddress()
	return s
}

func (s *script) socket(w Socket) {
	kind := unix.SOCK_STREAM
	if w.UDP {
		kind = unix.SOCK_DGRAM
	}
	family, address := unix.AF_INET, make([]byte, 16) // struct sockaddr_in
	if w.V6 {
		family, address = unix.AF_INET6, make([]byte, 28)
	}
	binary.NativeEndian.PutUint16(address, uint16(family))
	binary.BigEndian.PutUint16(address[2:], uint16(w.Port))
	switch {
	case w.Loopback && w.V6:
		address[23] = 1
	case w.Loopback:
		copy(address[4:], []byte{127, 0, 0, 1})
	}
	name := w.String()
	fd := s.keep("make "+name, unix.SYS_SOCKET, num(family), num(kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), num(0))
	one := s.bytes(binary.NativeEndian.AppendUint32(nil, 1))
	set := func(level, option int) {
		s.do("set up "+name, unix.SYS_SETSOCKOPT, fd.arg(), num(level), num(option), one, num(4))
	}
	if w.V6 {
		set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	}
	switch { // lets the server answer from the address that the program sent to
	case w.UDP && w.V6:
		set(unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO)
	case w.UDP:
		set(unix.IPPROTO_IP, unix.IP_PKTINFO)
	}
	s.do("bind "+name, unix.SYS_BIND, fd.arg(), s.bytes(address), num(len(address)))
	if !w.UDP {
		s.do("listen on "+name, unix.SYS_LISTEN, fd.arg(), num(backlog))
	}
	s.give(fd)
}

// everyAddress makes every IPv4 address local to the namespace, by one route to the loopback
// device. If the route exists, it is replaced by the same one. IPv6 has no such route: for each
// IPv6 address that a packet leaves for, the kernel would keep a neighbor, in a table of the
// whole host that has no bound for the loopback device and that no memory limit counts. So a
// program reaches ::1, and no other IPv6 address (ENETUNREACH).
func (s *script) everyAddress() {
	const head, answer = 16, 128 // size of struct nlmsghdr; size of the receive buffer
	const name = "have every IPv4 address lead here"
	fd := s.keep("make a netlink socket", unix.SYS_SOCKET, num(unix.AF_NETLINK), num(unix.SOCK_RAW|unix.SOCK_CLOEXEC), num(unix.NETLINK_ROUTE))
	ne := binary.NativeEndian
	m := ne.AppendUint32(nil, 0) // length
	m = ne.AppendUint16(m, unix.RTM_NEWROUTE)
	m = ne.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	m = append(m, make([]byte, 8)...) // sequence, port
	m = append(m, unix.AF_INET, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	m = ne.AppendUint32(m, 0) // flags
	m = ne.AppendUint16(m, 8)
	m = ne.AppendUint16(m, unix.RTA_OIF)
	m = ne.AppendUint32(m, loopback)
	ne.PutUint32(m, uint32(len(m)))
	reply := s.bytes(make([]byte, answer))
	s.add(name, unix.SYS_SENDTO, 0, 0, []arg{fd.arg(), s.bytes(m), num(len(m)), num(0), num(0), num(0)})
	s.add(name, unix.SYS_RECVFROM, 0, 0, []arg{fd.arg(), reply, num(answer), num(unix.MSG_DONTWAIT), num(0), num(0)})
	s.add(name, load32, 0, 0, []arg{at(reply, head)}) // the kernel's error
	s.do("close", unix.SYS_CLOSE, fd.arg())
}

// LeadOut declares that connections may lead out of the sandbox from now on, through what Sockets
// returns. Until then the caller of Sockets refuses every connection. The wall that Observe
// reports depends on it.
func (s *Slot) LeadOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.egress = true
}

// networkWall returns the name of the wall of a sandbox that has only a loopback device.
func (s *Slot) networkWall() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.egress:
		return sandboxmcp.WallEgress
	case s.told:
		return sandboxmcp.WallTold
	}
	return sandboxmcp.WallNoNetwork
}

// BeforeSockets has f called once, before a program of the sandbox makes its first network
// socket. The program waits until f returns. BeforeSockets returns false if f will not be
// called: a program may have made a socket before, or the kernel does not report it.
func (s *Slot) BeforeSockets(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sockets || s.dead {
		return false
	}
	s.prepare = f
	return true
}

// MayHaveSockets reports whether programs of the sandbox may have made a network socket.
// If it returns false, none has been made yet.
func (s *Slot) MayHaveSockets() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sockets
}

// Connect makes a TCP connection from inside the sandbox to one of its ports. The
// descriptor is non-blocking, and the connection may not be complete yet. The caller closes
// it. After this call the sandbox's network namespace is not reused. Connect may not be
// called after Close.
func (s *Slot) Connect(stop <-chan struct{}, port int) (int, error) {
	if s.jail.cfg.Mode == ModePlain {
		return -1, errors.ErrUnsupported
	}
	s.mu.Lock()
	dead := s.dead
	s.sockets = true
	s.mu.Unlock()
	if dead {
		return -1, ErrEnded
	}
	sc := &script{}
	sc.do("enter the network namespace", unix.SYS_SETNS, passed(0), num(unix.CLONE_NEWNET))
	address := make([]byte, 16) // struct sockaddr_in
	binary.NativeEndian.PutUint16(address, unix.AF_INET)
	binary.BigEndian.PutUint16(address[2:], uint16(port))
	copy(address[4:], []byte{127, 0, 0, 1})
	fd := sc.keep("make a socket", unix.SYS_SOCKET, num(unix.AF_INET), num(unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), num(0))
	sc.try("connect", unix.SYS_CONNECT, fd.arg(), sc.bytes(address), num(len(address)))
	sc.give(fd)
	return s.socketOf(stop, sc)
}

// SocketList returns a netlink socket (NETLINK_SOCK_DIAG) in the sandbox's network namespace, by which the server lists the
// sandbox's sockets. The caller closes it before Close. Programs cannot make such a socket.
func (s *Slot) SocketList(stop <-chan struct{}) (int, error) {
	if s.jail.cfg.Mode == ModePlain {
		return -1, errors.ErrUnsupported
	}
	sc := &script{}
	sc.do("enter the network namespace", unix.SYS_SETNS, passed(0), num(unix.CLONE_NEWNET))
	sc.give(sc.keep("make a netlink socket", unix.SYS_SOCKET, num(unix.AF_NETLINK), num(unix.SOCK_RAW|unix.SOCK_CLOEXEC), num(unix.NETLINK_INET_DIAG)))
	return s.socketOf(stop, sc)
}

// socketOf returns the one socket that a script makes in the sandbox's network namespace.
func (s *Slot) socketOf(stop <-chan struct{}, sc *script) (int, error) {
	fds, err := s.jail.once(stop, sc, s.gone, s.pidfd)
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("%d sockets were made, not 1", len(fds))
	}
	if err == nil {
		err = s.verifySockets(fds)
	}
	if err != nil {
		closeAll(fds...)
		return -1, s.orEnded(err)
	}
	return fds[0], nil
}

package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Socket is one that stands in a sandbox's network namespace and is the server's.
type Socket struct {
	Port     int
	UDP      bool // else it listens for TCP
	V6       bool
	Loopback bool // bound to 127.0.0.1 or ::1; else to every address
	Refusals bool // none of these, but one that sees what the kernel refuses; see ParseRefused
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

// loopback is the number of its device in every namespace.
const loopback = 1

// MaxSockets is how many can be asked for at once.
const MaxSockets = 16

// backlog is how many connections wait to be accepted. They are the server's
// memory, and a program can fill them.
const backlog = 128

// HaveV6 reports whether the kernel has IPv6 at all.
var HaveV6 = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	closeAll(fd)
	return err == nil
})

// Sockets makes sockets in the sandbox's network namespace, and has every address
// be the sandbox's own, so that whatever a program asks for leads to them. The
// descriptors are the caller's, non-blocking, bound and listening, in the order
// of want. When it fails none was made; ErrPortTaken tells that a program of the
// sandbox has a port. A sandbox that was asked for any leaves its network
// namespace to nobody. It may not be called after Close.
//
// They are made by a process of the jail's own that is in the sandbox's network
// namespace for that moment and in no other of its namespaces: one that no
// program can see, stop or signal, and whose user no program has.
func (s *Slot) Sockets(ctx context.Context, want []Socket) ([]int, error) {
	j := s.jail
	if j.cfg.Mode == ModePlain || len(want) == 0 || len(want) > MaxSockets {
		return nil, errors.ErrUnsupported
	}
	s.mu.Lock()
	dead := s.dead
	s.sockets, s.egress = true, true
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
		err = fmt.Errorf("%d sockets were made, not %d", len(fds), len(want))
	case err == nil:
		err = s.stand(fds)
	}
	if err != nil {
		closeAll(fds...)
		return nil, err
	}
	return fds, nil
}

// ErrPortTaken tells that a program of the sandbox has the port.
var ErrPortTaken = errors.New("a program in the sandbox has the port")

// stand demands of the kernel that the sockets are in the sandbox's network
// namespace and in no other.
func (s *Slot) stand(fds []int) error {
	var want, got unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", s.PID()), &want); err != nil {
		return fmt.Errorf("look at the network namespace: %w", err)
	}
	if s.Ended() { // its number may be another's
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
			return errors.New("a socket stands outside of the sandbox")
		}
	}
	return nil
}

// socketScript enters the network namespace of the process whose pidfd is passed,
// makes the sockets and then has every address lead to them.
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
	switch { // an answer comes from the address that was asked
	case w.UDP && w.V6:
		set(unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO)
		set(unix.IPPROTO_IPV6, unix.IPV6_FREEBIND)
	case w.UDP:
		set(unix.IPPROTO_IP, unix.IP_PKTINFO)
	}
	s.do("bind "+name, unix.SYS_BIND, fd.arg(), s.bytes(address), num(len(address)))
	if !w.UDP {
		s.do("listen on "+name, unix.SYS_LISTEN, fd.arg(), num(backlog))
	}
	s.give(fd)
}

// everyAddress makes every address one of the namespace's own, by one route to
// its loopback device for each family. Where they are already nothing changes.
func (s *script) everyAddress() {
	const head, answer = 16, 128 // of a message; room
	fd := s.keep("make a netlink socket", unix.SYS_SOCKET, num(unix.AF_NETLINK), num(unix.SOCK_RAW|unix.SOCK_CLOEXEC), num(unix.NETLINK_ROUTE))
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		ne := binary.NativeEndian
		m := ne.AppendUint32(nil, 0) // length
		m = ne.AppendUint16(m, unix.RTM_NEWROUTE)
		m = ne.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
		m = append(m, make([]byte, 8)...) // sequence, port
		scope := byte(unix.RT_SCOPE_HOST)
		if family == unix.AF_INET6 {
			scope = unix.RT_SCOPE_UNIVERSE // which is all that IPv6 knows
		}
		m = append(m, byte(family), 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, scope, unix.RTN_LOCAL)
		m = ne.AppendUint32(m, 0) // flags
		m = ne.AppendUint16(m, 8)
		m = ne.AppendUint16(m, unix.RTA_OIF)
		m = ne.AppendUint32(m, loopback)
		ne.PutUint32(m, uint32(len(m)))
		name, flags := "have every IPv4 address lead here", uint32(0)
		if family == unix.AF_INET6 { // without the route no such address can be reached
			name, flags = "have every IPv6 address lead here", mayFail
		}
		reply := s.bytes(make([]byte, answer))
		s.add(name, unix.SYS_SENDTO, flags, 0, []arg{fd.arg(), s.bytes(m), num(len(m)), num(0), num(0), num(0)})
		s.add(name, unix.SYS_RECVFROM, flags, 0, []arg{fd.arg(), reply, num(answer), num(unix.MSG_DONTWAIT), num(0), num(0)})
		s.add(name, load32, flags, 0, []arg{at(reply, head)}) // the kernel's error
	}
	s.do("close", unix.SYS_CLOSE, fd.arg())
}

// Egress reports whether the sandbox has sockets of the server's, or may have.
func (s *Slot) Egress() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.egress
}

// MayHaveSockets reports whether programs of the sandbox may have made a socket of the
// network. If it returns false, none has done so yet.
func (s *Slot) MayHaveSockets() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sockets
}

// Connect makes a TCP connection from inside the sandbox to one of its ports. The
// descriptor is the caller's, non-blocking; the connection may still be in the making.
// A sandbox in which one was made leaves its network namespace to nobody. It may not be
// called after Close.
func (s *Slot) Connect(stop <-chan struct{}, port int) (int, error) {
	j := s.jail
	if j.cfg.Mode == ModePlain {
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
	fds, err := j.once(stop, sc, s.gone, s.pidfd)
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("%d sockets were made, not 1", len(fds))
	}
	if err == nil {
		err = s.stand(fds)
	}
	if err != nil {
		closeAll(fds...)
		return -1, err
	}
	return fds[0], nil
}

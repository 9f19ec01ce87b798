package jail

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// When the kernel refuses a connection, it answers with a TCP reset of a connection
// that was not established, or with an ICMP "port unreachable". A packet socket in
// the same network namespace sees these packets. In a sandbox only the kernel can
// send them: a program would need a raw socket, and none gets one.

const (
	refusedBuffer = 128 << 10 // receive buffer: about a hundred packets; the kernel counts what it drops
	refusedBytes  = 128       // bytes of a packet that the socket receives: all headers that are parsed
)

// refusedFilter returns the socket filter that passes only these packets, of IPv4. The packet
// starts at the IP header. Packets from 127.0.0.0/8 are dropped: they are not about
// a connection out of the sandbox.
func refusedFilter() []byte {
	const load, jump, yes, no = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, refusedBytes, 0
	ins := []unix.SockFilter{
		{Code: load | unix.BPF_B, K: 0}, // version
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: 4},
		{Code: jump, Jf: 16, K: 4},
		{Code: load | unix.BPF_B, K: 12}, // source address
		{Code: jump, Jt: 14, K: 127},
		{Code: load | unix.BPF_H, K: 6}, // fragments after the first have no TCP or ICMP header
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 12, K: 0x1fff},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}, // length of the IP header
		{Code: load | unix.BPF_B, K: 9},                        // protocol
		{Code: jump, Jt: 1, K: unix.IPPROTO_TCP},
		{Code: jump, Jt: 5, Jf: 8, K: unix.IPPROTO_ICMP},
		{Code: unix.BPF_LD | unix.BPF_IND | unix.BPF_B, K: 13}, // TCP flags
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x14},
		{Code: jump, Jf: 5, K: 0x14},                          // RST and ACK
		{Code: unix.BPF_LD | unix.BPF_IND | unix.BPF_W, K: 4}, // sequence number: 0 answers a SYN
		{Code: jump, Jt: 2, Jf: 3, K: 0},
		{Code: unix.BPF_LD | unix.BPF_IND | unix.BPF_H, K: 0},
		{Code: jump, Jf: 1, K: 0x0303}, // ICMP type 3, code 3: port unreachable
		{Code: unix.BPF_RET | unix.BPF_K, K: yes},
		{Code: unix.BPF_RET | unix.BPF_K, K: no},
	}
	return filterBytes(ins)
}

// Refused is a destination that a program of a sandbox tried to reach and on which no
// socket listens.
type Refused struct {
	UDP     bool
	Address netip.AddrPort
}

// ParseRefused reads a packet from a socket with Socket.Refusals. ok is false if the
// packet is malformed or its destination is a loopback address.
func ParseRefused(p []byte) (r Refused, ok bool) {
	at := func(from, n int) []byte {
		if from+n > len(p) {
			ok = false
			return make([]byte, n)
		}
		return p[from : from+n]
	}
	address := func(ip, port []byte) netip.AddrPort {
		a, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
	}
	ok = true
	if at(0, 1)[0]>>4 != 4 { // no packet of a program leaves for an IPv6 address
		return r, false
	}
	head := int(p[0]&0xf) * 4
	if at(9, 1)[0] == unix.IPPROTO_TCP {
		r.Address = address(at(12, 4), at(head, 2))
	} else {
		inner := head + 8 // the program's packet, quoted in the ICMP message
		r.UDP = true
		ok = ok && at(inner+9, 1)[0] == unix.IPPROTO_UDP
		r.Address = address(at(inner+16, 4), at(inner+int(at(inner, 1)[0]&0xf)*4+2, 2))
	}
	return r, ok && !r.Address.Addr().IsLoopback()
}

// refusals makes a packet socket that receives only what refusedFilter passes.
func (s *script) refusals() {
	name := "socket of refusals"
	fd := s.keep("make a "+name, unix.SYS_SOCKET, num(unix.AF_PACKET), num(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), num(0)) // protocol 0: it receives nothing before it is bound
	set := func(level, option int, value []byte) {
		s.do("set up a "+name, unix.SYS_SETSOCKOPT, fd.arg(), num(level), num(option), s.bytes(value), num(len(value)))
	}
	code := refusedFilter()
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(code)/8))
	filter := s.bytes(append(head, make([]byte, 8)...))
	s.store("place of its filter", store64, at(filter, 8), s.bytes(code))
	s.do("set up a "+name, unix.SYS_SETSOCKOPT, fd.arg(), num(unix.SOL_SOCKET), num(unix.SO_ATTACH_FILTER), filter, num(16))
	set(unix.SOL_SOCKET, unix.SO_RCVBUF, binary.NativeEndian.AppendUint32(nil, refusedBuffer))
	set(unix.SOL_PACKET, packetIgnoreOutgoing, binary.NativeEndian.AppendUint32(nil, 1)) // loopback delivers each packet twice, as outgoing and as incoming
	address := binary.NativeEndian.AppendUint16(nil, unix.AF_PACKET)                     // struct sockaddr_ll
	address = binary.BigEndian.AppendUint16(address, unix.ETH_P_ALL)
	address = append(binary.NativeEndian.AppendUint32(address, loopback), make([]byte, 12)...)
	s.do("bind a "+name, unix.SYS_BIND, fd.arg(), s.bytes(address), num(len(address)))
	s.give(fd)
}

// packetIgnoreOutgoing is PACKET_IGNORE_OUTGOING.
const packetIgnoreOutgoing = 23

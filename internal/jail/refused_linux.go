package jail

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A kernel that refuses a connection tells the program so, by a packet that a
// socket in the same network namespace can see: a reset of what was no connection
// yet, or that a port of UDP cannot be reached. Nobody but the kernel can send
// one there: it takes a raw socket, which no program gets.

const (
	refusedBuffer = 128 << 10 // some hundred of them; what is more is counted
	refusedBytes  = 128       // of each, which is all that has to be read
)

// refusedFilter lets a socket see these packets alone. It begins at the network's
// header; those from 127.0.0.0/8 say nothing of the way out.
func refusedFilter() []byte {
	const load, jump, yes, no = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, refusedBytes, 0
	ins := []unix.SockFilter{
		{Code: load | unix.BPF_B, K: 0}, // version
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: 4},
		{Code: jump, Jf: 15, K: 4},
		{Code: load | unix.BPF_B, K: 12}, // from
		{Code: jump, Jt: 23, K: 127},
		{Code: load | unix.BPF_H, K: 6}, // a later fragment has no such header
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 21, K: 0x1fff},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}, // its header's length
		{Code: load | unix.BPF_B, K: 9},                        // protocol
		{Code: jump, Jt: 1, K: unix.IPPROTO_TCP},
		{Code: jump, Jt: 5, Jf: 17, K: unix.IPPROTO_ICMP},
		{Code: unix.BPF_LD | unix.BPF_IND | unix.BPF_B, K: 13}, // flags
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x14},
		{Code: jump, Jf: 14, K: 0x14},                         // a reset
		{Code: unix.BPF_LD | unix.BPF_IND | unix.BPF_W, K: 4}, // of what had no number
		{Code: jump, Jt: 11, Jf: 12, K: 0},
		{Code: unix.BPF_LD | unix.BPF_IND | unix.BPF_H, K: 0},
		{Code: jump, Jt: 9, Jf: 10, K: 0x0303}, // no such port
		{Code: jump, Jf: 9, K: 6},              // IPv6: the same
		{Code: load | unix.BPF_B, K: 6},
		{Code: jump, Jf: 5, K: unix.IPPROTO_TCP},
		{Code: load | unix.BPF_B, K: 53},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x14},
		{Code: jump, Jf: 4, K: 0x14},
		{Code: load | unix.BPF_W, K: 44},
		{Code: jump, Jt: 1, Jf: 2, K: 0},
		{Code: jump, Jt: 2, Jf: 1, K: unix.IPPROTO_ICMPV6},
		{Code: unix.BPF_RET | unix.BPF_K, K: yes},
		{Code: unix.BPF_RET | unix.BPF_K, K: no},
		{Code: load | unix.BPF_H, K: 40},
		{Code: jump, Jf: 1, K: 0x0104},
		{Code: unix.BPF_RET | unix.BPF_K, K: yes},
		{Code: unix.BPF_RET | unix.BPF_K, K: no},
	}
	return filterBytes(ins)
}

// Refused is where a program of a sandbox wanted to go, and nobody listens.
type Refused struct {
	UDP     bool
	Address netip.AddrPort
}

// ParseRefused reads a packet that a socket of refusals has seen. ok is false for
// one that says nothing of the way out.
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
	switch at(0, 1)[0] >> 4 {
	case 4:
		head := int(p[0]&0xf) * 4
		if at(9, 1)[0] == unix.IPPROTO_TCP {
			r.Address = address(at(12, 4), at(head, 2))
			break
		}
		inner := head + 8 // the packet that was refused
		r.UDP = true
		ok = ok && at(inner+9, 1)[0] == unix.IPPROTO_UDP
		r.Address = address(at(inner+16, 4), at(inner+int(at(inner, 1)[0]&0xf)*4+2, 2))
	case 6:
		if at(6, 1)[0] == unix.IPPROTO_TCP {
			r.Address = address(at(8, 16), at(40, 2))
			break
		}
		r.UDP = true
		ok = ok && at(48+6, 1)[0] == unix.IPPROTO_UDP
		r.Address = address(at(48+24, 16), at(48+40+2, 2))
	default:
		return r, false
	}
	return r, ok && !r.Address.Addr().IsLoopback()
}

// refusals makes a socket that sees what is refused.
func (s *script) refusals() {
	name := "socket of refusals"
	fd := s.keep("make a "+name, unix.SYS_SOCKET, num(unix.AF_PACKET), num(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), num(0)) // sees nothing before it is bound
	set := func(level, option int, value []byte) {
		s.do("set up a "+name, unix.SYS_SETSOCKOPT, fd.arg(), num(level), num(option), s.bytes(value), num(len(value)))
	}
	code := refusedFilter()
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(code)/8))
	filter := s.bytes(append(head, make([]byte, 8)...))
	s.store("place of its filter", store64, at(filter, 8), s.bytes(code))
	s.do("set up a "+name, unix.SYS_SETSOCKOPT, fd.arg(), num(unix.SOL_SOCKET), num(unix.SO_ATTACH_FILTER), filter, num(16))
	set(unix.SOL_SOCKET, unix.SO_RCVBUF, binary.NativeEndian.AppendUint32(nil, refusedBuffer))
	set(unix.SOL_PACKET, packetIgnoreOutgoing, binary.NativeEndian.AppendUint32(nil, 1)) // loopback shows each twice
	address := binary.NativeEndian.AppendUint16(nil, unix.AF_PACKET)                     // struct sockaddr_ll
	address = binary.BigEndian.AppendUint16(address, unix.ETH_P_ALL)
	address = append(binary.NativeEndian.AppendUint32(address, loopback), make([]byte, 12)...)
	s.do("bind a "+name, unix.SYS_BIND, fd.arg(), s.bytes(address), num(len(address)))
	s.give(fd)
}

// packetIgnoreOutgoing is PACKET_IGNORE_OUTGOING.
const packetIgnoreOutgoing = 23

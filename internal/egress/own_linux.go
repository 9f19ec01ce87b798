package egress

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// routesHere asks the kernel for its route to an address, and reports whether the route ends at this machine. Without an
// answer it returns false.
func routesHere(a netip.Addr) bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if err = unix.Sendto(fd, routeQuestion(a), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false
	}
	answer := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT) // the kernel has answered within Sendto
	const typeAt = unix.SizeofNlMsghdr + 7                    // rtm_type in struct rtmsg
	if err != nil || n < unix.SizeofNlMsghdr+unix.SizeofRtMsg || binary.NativeEndian.Uint16(answer[4:]) != unix.RTM_NEWROUTE {
		return false
	}
	switch answer[typeAt] {
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST, unix.RTN_MULTICAST:
		return true
	}
	return false
}

// routeQuestion returns the netlink message that asks for the route to an address.
func routeQuestion(a netip.Addr) []byte {
	ne, to, family := binary.NativeEndian, a.AsSlice(), byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	attribute := unix.SizeofRtAttr + len(to)
	m := ne.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+unix.SizeofRtMsg+attribute))
	m = ne.AppendUint16(m, unix.RTM_GETROUTE)
	m = ne.AppendUint16(m, unix.NLM_F_REQUEST)
	m = append(m, make([]byte, 8)...)
	m = append(m, family, byte(8*len(to)))
	m = append(m, make([]byte, unix.SizeofRtMsg-2)...)
	m = ne.AppendUint16(m, uint16(attribute))
	m = ne.AppendUint16(m, unix.RTA_DST)
	return append(m, to...)
}

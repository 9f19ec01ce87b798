package egress

import (
	"net"
	"net/netip"
	"sync"
)

// special lists the addresses that no sandbox may reach: all of IANA's special-purpose
// registries, even entries that are globally reachable, multicast, reserved ranges, and those of
// clouds that only their own machines reach.
// Of IPv6 only global unicast addresses are allowed.
var special = sync.OnceValue(func() (all []block) {
	for _, s := range []struct{ prefix, what string }{
		{"0.0.0.0/8", "unspecified"},
		{"10.0.0.0/8", "private"},
		{"100.64.0.0/10", "of a carrier's or a cloud's own network"},
		{"127.0.0.0/8", "loopback"},
		{"169.254.0.0/16", "link-local, where clouds keep their metadata"},
		{"172.16.0.0/12", "private"},
		{"192.0.0.0/24", "reserved for protocols"},
		{"192.0.2.0/24", "for documentation"},
		{"192.31.196.0/24", "reserved for protocols"},
		{"192.52.193.0/24", "reserved for protocols"},
		{"192.88.99.0/24", "a 6to4 relay"},
		{"192.168.0.0/16", "private"},
		{"192.175.48.0/24", "reserved for protocols"},
		{"198.18.0.0/15", "for benchmarks"},
		{"198.51.100.0/24", "for documentation"},
		{"203.0.113.0/24", "for documentation"},
		{"224.0.0.0/4", "multicast"},
		{"240.0.0.0/4", "reserved"},
		{"168.63.129.16/32", "where a cloud keeps its metadata"},    // Azure's WireServer: a public address that each virtual machine uses to reach its own host
		{"34.118.224.0/20", "for services of a Kubernetes cluster"}, // of GKE, if the operator names no other range; it leads nowhere else
		{"161.26.0.0/16", "of a cloud's own network"},               // of IBM: services that only its machines reach
		{"166.8.0.0/14", "of a cloud's own network"},                // of IBM

		{"2001::/23", "reserved for protocols, such as Teredo"},
		{"2001:db8::/32", "for documentation"},
		{"2002::/16", "6to4"},
		{"2620:4f:8000::/48", "reserved for protocols"},
		{"3fff::/20", "for documentation"},
	} {
		all = append(all, block{netip.MustParsePrefix(s.prefix), s.what})
	}
	return all
})

// block is a range of addresses and its purpose.
type block struct {
	netip.Prefix
	what string
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // the last four bytes are an IPv4 address
)

// Special says why an address is special, or returns "" for an ordinary public one. An
// IPv4-mapped address and a NAT64 address are judged by the IPv4 address in them.
// Addresses of other tunnels, and addresses with a zone, are special.
func Special(a netip.Addr) string {
	if !a.IsValid() {
		return "none"
	}
	if a.Zone() != "" {
		return "link-local"
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		return Special(netip.AddrFrom4([4]byte(b[12:])))
	}
	for _, s := range special() {
		if s.Contains(a) {
			return s.what
		}
	}
	if a.Is4() {
		return ""
	}
	if globalUnicast.Contains(a) {
		if isISATAP(a) {
			return "of an ISATAP tunnel"
		}
		return ""
	}
	switch {
	case a.IsLoopback():
		return "loopback"
	case a.IsUnspecified():
		return "unspecified"
	case a.IsPrivate():
		return "private"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsMulticast():
		return "multicast"
	default:
		return "reserved"
	}
}

// isISATAP reports whether a tunnel to an IPv4 address of a site is behind an address (RFC 5214).
func isISATAP(a netip.Addr) bool {
	b := a.As16()
	const universal = 2 // may be set in the first byte
	return b[8]&^universal == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// ofThisMachine reports whether a connection to the address may stay inside this machine, where
// it passes no external firewall. Not only addresses of interfaces do: load balancers route
// their addresses to the machines behind them, which have local routes for them. Addresses of
// interfaces count without such a route, because not every kernel tells of it (gVisor, interfaces in a VRF).
func ofThisMachine(a netip.Addr) bool {
	a = a.Unmap()
	if routesHere(a) {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // unknown, so refuse
	}
	for _, n := range all {
		p, err := netip.ParsePrefix(n.String())
		if err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

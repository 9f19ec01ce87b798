package egress

import (
	"net/netip"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// stands is the address range for addresses that represent names. It is reserved for
// benchmarks (RFC 2544), so no real host has such an address.
var stands = netip.MustParsePrefix("198.18.0.0/15")

// names maps each name to one address, for the life of the link.
type names struct {
	max int

	mu   sync.Mutex
	addr map[sandboxmcp.Host]netip.Addr
	host map[netip.Addr]sandboxmcp.Host
	last netip.Addr
}

func newNames(limit int) *names {
	return &names{max: limit, addr: map[sandboxmcp.Host]netip.Addr{}, host: map[netip.Addr]sandboxmcp.Host{}, last: stands.Addr()}
}

// address returns the address that represents the name. It returns false if there are
// too many names.
func (n *names) address(h sandboxmcp.Host) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.addr[h]; ok {
		return a, true
	}
	a := n.last.Next()
	if len(n.addr) >= n.max || !stands.Contains(a) {
		return netip.Addr{}, false
	}
	n.addr[h], n.host[a], n.last = a, h, a
	return a, true
}

// name returns the name that the address represents. It returns false if the address
// represents no name.
func (n *names) name(a netip.Addr) (sandboxmcp.Host, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.host[a.Unmap()]
	return h, ok
}

package egress

import (
	"net/netip"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// stands is the range of the addresses that stand for names. It is set aside for
// benchmarks of network gear: nobody has such an address.
var stands = netip.MustParsePrefix("198.18.0.0/15")

// names gives each name one address, for as long as the link lives.
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

// address returns the address that stands for the name; false: there are too
// many names already.
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

// name returns the name for which the address stands; false: for none.
func (n *names) name(a netip.Addr) (sandboxmcp.Host, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.host[a.Unmap()]
	return h, ok
}

package egress

import "net"

// TestOnlyResolver replaces the machine's resolver.
func (d *Dialer) TestOnlyResolver(r *net.Resolver) { d.resolver = r }

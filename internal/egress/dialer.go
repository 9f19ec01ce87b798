package egress

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Dialer connects for requests of the server itself, with the same check of addresses as
// for sandboxes. It ignores proxy variables.
type Dialer struct {
	timeout time.Duration
	allow   atomic.Pointer[map[string]bool]

	resolver *net.Resolver
}

// NewDialer makes a Dialer. allow lists host:port pairs that may have a special address;
// the host is written as in the URLs that name it.
func NewDialer(timeout time.Duration, allow []string) *Dialer {
	d := &Dialer{timeout: timeout, resolver: newResolver("")}
	d.SetAllow(allow)
	return d
}

// SetAllow replaces the host:port pairs that may have a special address, for connections to come.
func (d *Dialer) SetAllow(allow []string) {
	all := make(map[string]bool, len(allow))
	for _, a := range allow {
		all[strings.ToLower(a)] = true
	}
	d.allow.Store(&all)
}

// allows reports whether the operator lets a host:port have a special address, such as a private one.
func (d *Dialer) allows(address string) bool { return (*d.allow.Load())[strings.ToLower(address)] }

// Check returns the error that DialContext would return for the address of a host:port, and connects to
// nothing. It is for a program that may fail before it connects: a connection needs DialContext, because
// a name can get another address. A name that cannot be resolved passes.
func (d *Dialer) Check(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if err = Judged(ctx, address); err != nil || d.allows(address) {
		return err
	}
	if name, local := thisMachine(host); local {
		return &BlockedError{Host: name, Addr: netip.IPv6Loopback(), What: "loopback"}
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	found := []string{host}
	if net.ParseIP(host) == nil {
		found, _ = d.resolver.LookupHost(ctx, strings.TrimSuffix(host, ".")+".")
	}
	var blocked error
	for _, ip := range found {
		err := check(sandboxmcp.Host(host), net.JoinHostPort(ip, port))
		if err == nil {
			return nil
		}
		blocked = cmp.Or(blocked, err)
	}
	return blocked
}

// thisMachine reports whether a host is a name of this machine, also if a resolver knows another address.
func thisMachine(host string) (sandboxmcp.Host, bool) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return sandboxmcp.Host(name), name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// DialContext connects by TCP. If each address of the host is special, the error wraps a
// [*BlockedError]. If ctx has a [Judge] that refuses the host, the error is the judge's.
func (d *Dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err = Judged(ctx, address); err != nil {
		return nil, err
	}
	n, judge := net.Dialer{Timeout: d.timeout, Resolver: d.resolver}, anyAddress
	if !d.allows(address) {
		if name, local := thisMachine(host); local {
			return nil, &BlockedError{Host: name, Addr: netip.IPv6Loopback(), What: "loopback"}
		}
		name := sandboxmcp.Host(host)
		judge = func(to string) error { return check(name, to) }
	}
	if net.ParseIP(host) == nil {
		host = strings.TrimSuffix(host, ".") + "." // keeps the resolver from appending the server's search domains
	}
	return dialFew(ctx, n, net.JoinHostPort(host, port), judge)
}

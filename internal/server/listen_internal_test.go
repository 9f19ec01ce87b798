package server

import (
	"net/netip"
	"testing"
)

func TestLinkHost(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	for _, c := range []struct {
		asked, bound string
		own          []netip.Addr
		want         string
	}{
		{"127.0.0.1", "127.0.0.1", []netip.Addr{four}, "127.0.0.1"},
		{"localhost", "127.0.0.1", []netip.Addr{four}, "localhost"},
		{"192.0.2.9", "192.0.2.9", []netip.Addr{four}, "192.0.2.9"},
		{"0.0.0.0", "0.0.0.0", []netip.Addr{six, four}, "192.0.2.7"},
		{"0.0.0.0", "::", []netip.Addr{six, four}, "192.0.2.7"}, // as Linux has it
		{"0.0.0.0", "::", []netip.Addr{six}, "2001:db8::7"},
		{"0.0.0.0", "::", nil, "127.0.0.1"},
		{"::", "::", []netip.Addr{four, six}, "2001:db8::7"},
		{"::", "::", []netip.Addr{four}, "192.0.2.7"},
		{"::", "::", nil, "::1"},
	} {
		if got := linkHost(c.asked, netip.MustParseAddr(c.bound), func() []netip.Addr { return c.own }); got != c.want {
			t.Errorf("listening on %s (%s) with %v: links name %s, want %s", c.asked, c.bound, c.own, got, c.want)
		}
	}
	for _, a := range ownAddresses() {
		if a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.Zone() != "" {
			t.Errorf("%s is taken for an address that others may reach", a)
		}
	}
}

package egress_test

import (
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// registry is the whole of IANA's registries of special-purpose addresses, IPv4
// and IPv6, with multicast and the parts of IPv6 that are no global unicast. It is
// written as they are, block by block; the room's own table is shorter.
var registry = strings.Fields(`
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29 192.0.0.8/32 192.0.0.9/32 192.0.0.10/32
192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
203.0.113.0/24 240.0.0.0/4 255.255.255.255/32 224.0.0.0/4
34.118.224.0/20 161.26.0.0/16 166.8.0.0/14
::1/128 :: ::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28
2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7 fe80::/10 ff00::/8
::/3 4000::/2 8000::/1`)

// bits is an address as text of zeros and ones.
func bits(a netip.Addr) string {
	n := new(big.Int).SetBytes(a.AsSlice())
	return fmt.Sprintf("%0*b", a.BitLen(), n)
}

// isatap is the third quarter of an address of an ISATAP tunnel, whose seventh bit may also be set.
const isatap = "00000000000000000101111011111110"

// slow is the reference: text is compared with text.
func slow(a netip.Addr) bool {
	a = a.WithZone("")
	b := bits(a)
	if a.Is6() {
		mapped, nat64 := bits(netip.MustParseAddr("::ffff:0:0"))[:96], bits(netip.MustParseAddr("64:ff9b::"))[:96]
		if b[:96] == mapped || b[:96] == nat64 {
			s := a.As16()
			return slow(netip.AddrFrom4([4]byte(s[12:])))
		}
	}
	if a == netip.MustParseAddr("168.63.129.16") || a.Is6() && (b[64:96] == isatap || b[64:96] == "000000"+"1"+isatap[7:]) {
		return true
	}
	for _, r := range registry {
		addr, length, ok := strings.Cut(r, "/")
		p := netip.MustParseAddr(addr)
		n := p.BitLen()
		if ok {
			_, _ = fmt.Sscan(length, &n)
		}
		if p.BitLen() == a.BitLen() && bits(p)[:n] == b[:n] {
			return true
		}
	}
	return false
}

func TestSpecial(t *testing.T) {
	for text, want := range map[string]string{
		"1.1.1.1": "", "8.8.8.8": "", "93.184.215.14": "", "2606:4700:4700::1111": "", "2a00:1450:4001::200e": "", "::ffff:8.8.8.8": "", "64:ff9b::808:808": "",
		"9.255.255.255": "", "11.0.0.0": "", "172.15.255.255": "", "172.32.0.0": "", "192.167.255.255": "", "192.169.0.0": "", "100.63.255.255": "", "100.128.0.0": "", "198.17.255.255": "", "198.20.0.0": "", "223.255.255.255": "", "168.63.129.15": "",
		"34.118.223.255": "", "34.118.240.0": "", "161.25.255.255": "", "161.27.0.0": "", "166.7.255.255": "", "166.12.0.0": "", "2606:4700::5eff:a00:1": "", "2606:4700::100:5efe:a00:1": "",
		"34.118.224.1": "Kubernetes", "34.118.239.255": "Kubernetes", "::ffff:34.118.224.1": "Kubernetes", "64:ff9b::2276:e001": "Kubernetes", "161.26.0.10": "cloud's own", "166.9.1.2": "cloud's own",
		"2606:4700::5efe:a00:1": "ISATAP", "2606:4700::200:5efe:808:808": "ISATAP",
		"127.0.0.1": "loopback", "127.255.255.255": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback", "64:ff9b::7f00:1": "loopback", "0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.255.255": "private", "fd00:ec2::254": "private", "fc00::1": "private", "::ffff:10.1.2.3": "private",
		"169.254.169.254": "metadata", "::ffff:a9fe:a9fe": "metadata", "64:ff9b::a9fe:a9fe": "metadata", "168.63.129.16": "metadata", "100.100.100.200": "cloud", "192.0.0.192": "protocols",
		"fe80::1": "link-local", "fe80::1%eth0": "link-local", "2606:4700::1%eth0": "link-local", "224.0.0.1": "multicast", "ff02::1": "multicast", "239.255.255.255": "multicast", "255.255.255.255": "reserved", "240.0.0.1": "reserved",
		"2002:7f00:1::1": "6to4", "2002:808:808::1": "6to4", "2001:0:808:808::1": "Teredo", "2001:db8::1": "documentation", "3fff::1": "documentation", "192.0.2.1": "documentation", "198.18.0.1": "benchmarks", "64:ff9b:1::808:808": "reserved",
		"::7f00:1": "reserved", "::808:808": "reserved", "100::1": "reserved", "5f00::1": "reserved", "fec0::1": "reserved", "4000::1": "reserved",
	} {
		a := netip.MustParseAddr(text)
		got := egress.Special(a)
		if want == "" && got != "" || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if a.Zone() == "" && slow(a) != (got != "") {
			t.Errorf("%s: got %q, and the reference says %v", text, got, slow(a))
		}
	}
	if egress.Special(netip.Addr{}) == "" {
		t.Error("no address at all: got an ordinary one")
	}
}

// TestSpecialEdges compares with the reference at, before and after both ends of
// every block.
func TestSpecialEdges(t *testing.T) {
	n := 0
	for _, r := range registry {
		p, err := netip.ParsePrefix(r)
		if err != nil {
			a := netip.MustParseAddr(r)
			p = netip.PrefixFrom(a, a.BitLen())
		}
		last := p.Addr().AsSlice()
		for i := p.Bits(); i < p.Addr().BitLen(); i++ {
			last[i/8] |= 1 << (7 - i%8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{p.Addr(), p.Addr().Prev(), p.Addr().Next(), end, end.Prev(), end.Next()} {
			if !a.IsValid() {
				continue
			}
			n++
			if got, want := egress.Special(a) != "", slow(a); got != want {
				t.Errorf("%s, at the edge of %s: got %v, want %v", a, r, got, want)
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d edges were looked at", n)
	}
}

func FuzzSpecial(f *testing.F) {
	for _, s := range append([]string{"8.8.8.8", "2606:4700:4700::1111", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2001:1ff::", "2001:200::", "3fff:fff::", "168.63.129.16"}, registry...) {
		addr, _, _ := strings.Cut(s, "/")
		f.Add(netip.MustParseAddr(addr).AsSlice())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		got := egress.Special(a) != ""
		if want := slow(a); got != want {
			t.Errorf("%s: got %v, want %v", a, got, want)
		}
		if a.Is4() {
			if mapped := netip.AddrFrom16(a.As16()); (egress.Special(mapped) != "") != got {
				t.Errorf("%s and %s differ", a, mapped)
			}
		}
	})
}

package egress

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
)

// TestOfThisMachine: every address of an interface is this machine's, in both of
// its forms.
func TestOfThisMachine(t *testing.T) {
	all, err := net.InterfaceAddrs()
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, n := range all {
		a := netip.MustParsePrefix(n.String()).Addr()
		if !ofThisMachine(a) || a.Is4() && !ofThisMachine(netip.AddrFrom16(a.As16())) {
			t.Errorf("%s is not seen to be this machine's", a)
		}
	}
	if ofThisMachine(netip.MustParseAddr("1.1.1.1")) {
		t.Error("1.1.1.1 is this machine's")
	}
}

// TestRoutesToThisMachine: an address is this machine's if the kernel has a local route for it, also without an interface
// that has the address.
func TestRoutesToThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("routes are asked for on Linux")
	}
	if !ofThisMachine(netip.MustParseAddr("127.9.9.9")) {
		t.Error("127.9.9.9, for which lo has a local route, is not seen to be this machine's")
	}
}

// TestCheck: what a socket is about to use is judged in every form in which the
// dialer writes it.
func TestCheck(t *testing.T) {
	for address, ok := range map[string]bool{
		"1.1.1.1:443": true, "[2606:4700::1]:443": true, "127.0.0.1:443": false, "[::1]:443": false, "[fe80::1%eth0]:443": false, "[::ffff:10.0.0.1]:443": false, "": false, "name:443": false,
	} {
		err := check("a.kit.test", address)
		if b, is := errors.AsType[*BlockedError](err); (err == nil) != ok || is && (b.Host != "a.kit.test" || b.What == "" || b.Error() == "") {
			t.Errorf("%q: got %v, want refused %v", address, err, !ok)
		}
	}
}

// TestRefusalsTellNoAddress: a refusal does not show the address of a name, because callers would learn the addresses
// of the server's network.
func TestRefusalsTellNoAddress(t *testing.T) {
	err := check("db.corp.example", "10.20.30.40:80")
	if err == nil || strings.Contains(err.Error(), "10.20.30.40") || !strings.Contains(err.Error(), "db.corp.example has an address that is private") {
		t.Errorf("a name: got %v, want that its address is private, and not the address", err)
	}
	if err = check("10.20.30.40", "10.20.30.40:80"); err == nil || !strings.Contains(err.Error(), "10.20.30.40 is private") {
		t.Errorf("an address: got %v, want that it is private", err)
	}
}

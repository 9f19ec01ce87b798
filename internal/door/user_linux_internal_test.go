package door

import (
	"net/netip"
	"testing"
)

// TestOnlyOpenConnectionsHaveAUser: the kernel lists a connection that its program has closed
// as root's. Such a line is not believed.
func TestOnlyOpenConnectionsHaveAUser(t *testing.T) {
	from, to := hexAddr(netip.MustParseAddrPort("127.0.0.1:40000"), false), hexAddr(netip.MustParseAddrPort("127.0.0.1:8080"), false)
	if from != "0100007F:9C40" || to != "0100007F:1F90" {
		t.Fatalf("got %s and %s, want 0100007F:9C40 and 0100007F:1F90", from, to)
	}
	if six := hexAddr(netip.MustParseAddrPort("127.0.0.1:8080"), true); six != "0000000000000000FFFF00000100007F:1F90" {
		t.Errorf("got %s, want the mapped address", six)
	}
	const rest = " 00000000:00000000 00:00000000 00000000 "
	for _, c := range []struct {
		name, line string
		want       int // -1: no connection
	}{
		{"open", "   3: " + from + " " + to + " 01" + rest + " 1000        0 4242 1 0000000000000000 20 4 30 10 -1", 1000},
		{"closed by its program", "   3: " + from + " " + to + " 04" + rest + "    0        0 0 1 0000000000000000 20 4 30 10 -1", -1},
		{"without a program", "   3: " + from + " " + to + " 01" + rest + "    0        0 0 1 0000000000000000 20 4 30 10 -1", -1},
		{"waiting", "   3: " + from + " " + to + " 06" + rest + "    0        0 0 3 0000000000000000", -1},
		{"the server's side", "   3: " + to + " " + from + " 01" + rest + "    0        0 77 1 0000000000000000", -1},
		{"cut", "   3: " + from + " " + to + " 01", -1},
	} {
		s, ok := parseSocket(c.line, from, to)
		if got := map[bool]int{true: s.uid, false: -1}[ok]; got != c.want {
			t.Errorf("%s: got user %d, want %d", c.name, got, c.want)
		}
	}
}

package docker_test

import (
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// TestNetworkOfGVisor: connections to every address of IPv4 and to names reach the server's listeners,
// which see the address that the program connected to.
func TestNetworkOfGVisor(t *testing.T) {
	b := newRelayed(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb := open(t, b, spec("network"))
	n, err := sb.(backend.Networker).Network(t.Context(), nil) //nolint:forcetypeassert // it is one
	if err != nil {
		t.Fatal(err)
	}
	for port, l := range n.TCP {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Logf("%d: %s", port, c.LocalAddr())
				_, _ = fmt.Fprintf(c, "%s\n", c.LocalAddr())
				_ = c.Close()
			}
		}()
	}
	const script = `
import socket
for to in [("198.18.0.5", 80), ("1.2.3.4", 443), ("1.2.3.4", 80), ("169.254.169.254", 80), ("203.0.113.9", 443)]:
    try:
        c = socket.create_connection(to, timeout=5)
        print(c.makefile().readline().strip())
    except OSError as e:
        print(to, e)
`
	const want = "198.18.0.5:80\n1.2.3.4:443\n1.2.3.4:80\n169.254.169.254:80\n203.0.113.9:443\n"
	if got := output(t, sb, "/usr/bin/python3 - <<'END'"+script+"END"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

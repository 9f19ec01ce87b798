package backendtest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// network opens the sandbox's network. The test answers each connection with the address that the
// program connected to, and DNS questions with nameAddress.
func (x *box) network(t *testing.T, ports ...int) *backend.Network {
	t.Helper()
	n, err := x.Sandbox.(backend.Networker).Network(t.Context(), ports)
	if err != nil {
		t.Fatalf("Network: %v", err)
	}
	x.once.Do(func() {
		for _, c := range n.DNS {
			go names(c)
		}
		for _, l := range n.DNSTCP {
			go echo(l)
		}
		go echo(n.Proxy)
	})
	for p, l := range n.TCP {
		if _, known := x.ports.LoadOrStore(p, true); !known {
			go echo(l)
		}
	}
	return n
}

// answering records on which sockets of a sandbox's network the test answers.
type answering struct {
	once  sync.Once
	ports sync.Map
}

// echo answers HTTP requests with the address that the program connected to.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			var b [512]byte
			_, _ = c.Read(b[:])
			text := c.LocalAddr().String() + "\n"
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			if tcp, ok := c.(interface{ CloseWrite() error }); ok {
				_ = tcp.CloseWrite()
			}
			_, _ = io.Copy(io.Discard, c)
		}()
	}
}

// nameAddress is the address of every name in the tests.
var nameAddress = net.IPv4(198, 18, 0, 5).To4()

// names answers DNS questions for A records, and gives others an empty answer.
func names(c net.PacketConn) {
	for b := make([]byte, 1500); ; {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		end := 12 // of the question section
		for end < n && b[end] != 0 {
			end += 1 + int(b[end])
		}
		if end += 5; n < 17 || end > n {
			continue
		}
		answer := slices.Clone(b[:end])
		copy(answer[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
		if binary.BigEndian.Uint16(b[end-4:]) == 1 {
			answer[7] = 1
			answer = append(append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4), nameAddress...)
		}
		_, _ = c.WriteTo(answer, from)
	}
}

// attempts is a program that connects to the addresses in its arguments and prints the outcome of
// each on a line.
const attempts = `
import socket, sys, errno
def tcp(host, port):
    s = socket.create_connection((host, port), 10)
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    b = b""
    while True:
        part = s.recv(4096)
        if not part: break
        b += part
    return b.decode().split("\r\n\r\n")[-1].strip()
def udp(host, port):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((host, port))
    s.send(b"\0\1\1\0\0\1\0\0\0\0\0\0\1x\4test\0\0\1\0\1")
    return socket.inet_ntoa(s.recv(512)[-4:])
for a in sys.argv[1:]:
    kind, host, port = a.split(" ")
    try:
        r = {"tcp": tcp, "udp": udp}[kind](host, int(port))
    except OSError as e:
        r = errno.errorcode.get(e.errno, repr(e))
    print(a, "=", r, flush=True)
`

// attempt runs attempts with the first strings, and compares the outcomes with the second ones.
func (x *box) attempt(t *testing.T, want [][2]string) {
	t.Helper()
	args, lines := []string{}, ""
	for _, w := range want {
		args = append(args, w[0])
		lines += w[0] + " = " + w[1] + "\n"
	}
	if e := x.run(t, x.python(t, attempts, args...)); e.Out != lines {
		t.Errorf("got\n%swant\n%s%s", e.Out, lines, e.Err)
	}
}

// deaf listens on the host's loopback. It returns the ways by which a program could reach it, and a
// function that returns what it has received.
func deaf(t *testing.T) (ways []string, heard func() map[string]int) {
	t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	note := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		counts[name]++
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), c.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			note("tcp")
			_ = conn.Close()
		}
	}()
	go func() {
		var b [64]byte
		for {
			if _, _, err := c.ReadFrom(b[:]); err != nil {
				return
			}
			note("udp")
		}
	}()
	_, tcp, _ := net.SplitHostPort(l.Addr().String())
	_, udp, _ := net.SplitHostPort(c.LocalAddr().String())
	return []string{"tcp 127.0.0.1 " + tcp, "udp 127.0.0.1 " + udp}, func() map[string]int {
		pause(t, 50*time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return map[string]int{"tcp": counts["tcp"], "udp": counts["udp"]}
	}
}

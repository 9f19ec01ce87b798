package listen

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// pairs is a listener without a network.
type pairs struct {
	net.Listener
	conns chan net.Conn
}

func (p pairs) Accept() (net.Conn, error) { return <-p.conns, nil }
func (p pairs) Close() error              { return nil }

// accept has a listener accept a new connection.
func (p pairs) accept(t *testing.T, l *boundedListener) *boundedConn {
	t.Helper()
	return p.acceptFrom(t, l, "")
}

// TestTheIdlestConnectionMakesRoom: it is one of the client with most connections. One
// without a request goes first, and of those the one that moved no bytes for longest.
func TestTheIdlestConnectionMakesRoom(t *testing.T) {
	inner := pairs{conns: make(chan net.Conn, 8)}
	l := newBounded(inner, 3)
	at := time.Unix(1, 0)
	l.now = func() time.Time { at = at.Add(time.Second); return at }
	accept := func(client string) *boundedConn {
		t.Helper()
		b := inner.accept(t, l)
		b.client = client
		return b
	}
	open := func(c *boundedConn) bool { _, there := l.open[c]; return there }
	lone, answered, idle := accept("lone"), accept("many"), accept("many")
	ConnState(answered, http.StateActive)
	newer := accept("many")
	if !open(lone) || !open(answered) || open(idle) || !open(newer) {
		t.Fatal("got another connection closed, want the idle one of the client with most")
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("got a connection that made room and can be read, want it closed")
	}
	ConnState(answered, http.StateIdle)
	answered.note(1) // newer is now the one on which nothing has moved for longest
	last := accept("many")
	if open(newer) || !open(answered) || !open(last) {
		t.Error("got another connection closed, want the one on which nothing has moved for longest")
	}
	_ = last.Close()
	_ = last.Close()
	if n := len(l.open); n != 2 {
		t.Errorf("got %d open after one was closed, want 2", n)
	}
}

// TestACallerMakesRoomForItself: of a proxy, which has one address, it is the caller with most
// connections.
func TestACallerMakesRoomForItself(t *testing.T) {
	inner := pairs{conns: make(chan net.Conn, 8)}
	l := newBounded(inner, 3)
	accept := func(caller string) *boundedConn {
		t.Helper()
		b := inner.accept(t, l)
		Belongs(ConnContext(t.Context(), b), caller)
		ConnState(b, http.StateActive)
		return b
	}
	lone, first, second := accept("lone"), accept("many"), accept("many")
	last := accept("many")
	for _, c := range []*boundedConn{lone, second, last} {
		if _, there := l.open[c]; !there {
			t.Errorf("got a connection of %s closed, want the oldest of many", c.of().caller)
		}
	}
	if _, there := l.open[first]; there {
		t.Error("got the oldest connection of many open, want it closed")
	}
}

// TestACallerWithManyAddressesIsOneClient: new connections of a caller from many addresses do not close those of another
// caller that has fewer.
func TestACallerWithManyAddressesIsOneClient(t *testing.T) {
	inner := pairs{conns: make(chan net.Conn, 8)}
	l := newBounded(inner, 6)
	accept := func(remote, caller string) *boundedConn {
		t.Helper()
		b := inner.acceptFrom(t, l, remote)
		Belongs(ConnContext(t.Context(), b), caller)
		ConnState(b, http.StateActive)
		return b
	}
	first, second := accept("192.0.2.1:1", "few"), accept("192.0.2.1:2", "few")
	for i := range 20 {
		accept("192.0.2."+strconv.Itoa(10+i)+":1", "many")
	}
	for _, c := range []*boundedConn{first, second} {
		if _, there := l.open[c]; !there {
			t.Error("got a connection of another caller closed, want one of the caller with the most connections closed")
		}
	}
}

// from is a connection from an address.
type from struct {
	net.Conn
	remote string
}

func (f from) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", f.remote)
	return a
}

// acceptFrom has a listener accept a new connection from an address.
func (p pairs) acceptFrom(t *testing.T, l *boundedListener, remote string) *boundedConn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = theirs.Close() })
	if remote != "" {
		ours = from{ours, remote}
	}
	p.conns <- ours
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b, ok := conn.(*boundedConn)
	if !ok {
		t.Fatalf("got a %T, want a *boundedConn", conn)
	}
	return b
}

// TestAMachineIsOneClient: a machine with a network of IPv6 has as many addresses as it likes. Connections
// from all of them together end no request of another client.
func TestAMachineIsOneClient(t *testing.T) {
	inner := pairs{conns: make(chan net.Conn, 8)}
	l := newBounded(inner, 5)
	accept := func(remote string) *boundedConn { return inner.acceptFrom(t, l, remote) }
	asking, kept := accept("[2001:db8:0:1::1]:1"), accept("[2001:db8:0:1::1]:2")
	ConnState(asking, http.StateActive)
	for _, remote := range []string{"[2001:db8:0:2::1]:1", "[2001:db8:0:2::2]:1", "[2001:db8:0:2:1::]:1", "[2001:db8:0:2:ffff::1]:1", "[2001:db8:0:2::3]:1", "[2001:db8:0:2::4]:1"} {
		accept(remote)
	}
	for _, b := range []*boundedConn{asking, kept} {
		if _, there := l.open[b]; !there {
			t.Error("got a connection of another client closed, want the idlest of the machine")
		}
	}
	if len(l.open) != 5 {
		t.Errorf("got %d connections open, want 5", len(l.open))
	}
}

// TestStrangersHaveHalfOfThePlaces: connections that have proved no caller, from whatever addresses, end none of a
// caller once they have half of the places. A caller who has most still makes room for strangers.
func TestStrangersHaveHalfOfThePlaces(t *testing.T) {
	inner := pairs{conns: make(chan net.Conn, 8)}
	l := newBounded(inner, 6)
	at := time.Unix(1, 0)
	l.now = func() time.Time { at = at.Add(time.Second); return at }
	accept := func(i int) *boundedConn { return inner.acceptFrom(t, l, "192.0.2."+strconv.Itoa(i)+":1") }
	var proved []*boundedConn
	for range 6 {
		c := accept(1)
		Belongs(ConnContext(t.Context(), c), "caller")
		ConnState(c, http.StateActive)
		proved = append(proved, c)
	}
	for i := range 20 {
		accept(10 + i)
	}
	left := 0
	for _, c := range proved {
		if _, there := l.open[c]; there {
			left++
		}
	}
	if left != 3 || len(l.open) != 6 {
		t.Errorf("got %d connections of the caller open, of %d, want 3 of 6", left, len(l.open))
	}
}

// TestACertificateProvesACaller: a connection whose handshake proves a key is that of a caller.
func TestACertificateProvesACaller(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	if err != nil {
		t.Fatal(err)
	}
	secure := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
	}
	inner := pairs{conns: make(chan net.Conn, 1)}
	l := newBounded(inner, 6)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	inner.conns <- from{ours, "192.0.2.1:1"}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b, ok := conn.(*boundedConn)
	if !ok {
		t.Fatalf("got a %T, want a *boundedConn", conn)
	}
	server, client := tls.Server(conn, secure), tls.Client(theirs, secure)
	ConnState(server, http.StateNew)
	if b.of().caller != "" {
		t.Error("before the handshake: got a caller, want a stranger")
	}
	go func() { _ = client.HandshakeContext(t.Context()); _, _ = client.Read(make([]byte, 1)) }()
	if err = server.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	ConnState(server, http.StateActive)
	if b.of().caller == "" {
		t.Error("after the handshake: got a stranger, want a caller")
	}
	_ = theirs.Close()
}

func TestClient(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1", "[::ffff:192.0.2.1]:2": "192.0.2.1", "[2001:db8::1]:1": "2001:db8::/64", "[fe80::1%eth0]:1": "fe80::/64", "@": "", "": "",
		"127.0.0.1:1": "127.0.0.0/8", "127.9.8.7:1": "127.0.0.0/8", "[::1]:1": "::/64",
	} {
		if got := Client(remote); got != want {
			t.Errorf("%q: got %q, want %q", remote, got, want)
		}
	}
}

package listen

import (
	"net"
	"net/http"
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
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = theirs.Close() })
	p.conns <- ours
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b, ok := c.(*boundedConn)
	if !ok {
		t.Fatalf("got a %T, want a *boundedConn", c)
	}
	return b
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
		Belongs(connContext(t.Context(), b), caller)
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

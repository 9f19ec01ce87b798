package egress

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// manyAddresses starts a DNS server that has a number of private addresses for a name.
func manyAddresses(t *testing.T, name string, count int) netip.AddrPort {
	t.Helper()
	all, a := make([]string, count), netip.MustParseAddr("10.0.0.0")
	for n := range all {
		a = a.Next()
		all[n] = a.String()
	}
	return NewNameServer(t, map[string][][]string{name: {all}}).At()
}

// TestManyAddresses: if a name has many addresses, the dialer tries only some of them. The answer is charged to the sandbox.
func TestManyAddresses(t *testing.T) {
	d := newDialer(Config{DNS: manyAddresses(t, "many.kit.test", 200)}, 10*time.Second)
	var tries atomic.Int32
	_, err := dialFew(t.Context(), net.Dialer{Resolver: d.resolver}, "many.kit.test.:443", func(to string) error {
		tries.Add(1)
		return check("many.kit.test", to)
	})
	if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.What != "private" {
		t.Errorf("got %v, want that the first address is private", err)
	}
	if n := tries.Load(); n != maxTries {
		t.Errorf("%d addresses were tried, want %d", n, maxTries)
	}
	now := time.Now()
	effort := backend.NewEffortAt(func() time.Time { return now }, func(time.Duration, <-chan struct{}) {})
	effort.Spend(backend.EffortBurst)
	if _, _, err = d.connect(withEffort(t.Context(), effort), "many.kit.test", 443); err == nil {
		t.Error("a private address was reached")
	}
	if rest, least := effort.Spend(0), 200*16*backend.CostAnswerByte; rest < least {
		t.Errorf("the sandbox rests for %s, want at least %s", rest, least)
	}
}

// TestLongAnswer: an answer with thousands of addresses is not used. Without this bound, each address took the server 20 µs.
func TestLongAnswer(t *testing.T) {
	d := newDialer(Config{DNS: manyAddresses(t, "long.kit.test", 4000)}, 10*time.Second)
	_, _, err := d.connect(t.Context(), "long.kit.test", 443)
	if _, ok := errors.AsType[*net.DNSError](err); !ok {
		t.Errorf("got %v, want that the name could not be resolved", err)
	}
}

// TestAConnectionIsJudgedByOneSetting: a connection counts as one that may have a special address if that is how its address
// was judged, also if the setting changes while its host is resolved.
func TestAConnectionIsJudgedByOneSetting(t *testing.T) {
	const host = "a.kit.test"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	listed := []sandboxmcp.Domain{{Host: host, Port: port}}
	d := newDialer(Config{DNS: NewNameServer(t, map[string][][]string{host: {{"127.0.0.1"}}}).At(), Private: listed}, 10*time.Second)
	for _, private := range []bool{true, false} {
		change := listed
		if private {
			change = nil
		}
		now, resolves := time.Now(), false
		effort := backend.NewEffortAt(func() time.Time {
			if resolves { // an answer is charged
				d.setPrivate(change)
			}
			return now
		}, func(time.Duration, <-chan struct{}) {})
		resolves = true
		c, got, err := d.connect(withEffort(t.Context(), effort), host, port)
		if err == nil {
			_ = c.Close()
		}
		if _, blocked := errors.AsType[*BlockedError](err); got != private || blocked == private || private && err != nil {
			t.Errorf("listed %t: got %t and %v, want the same", private, got, err)
		}
		if d.mayBePrivate(host, port) == private {
			t.Error("the setting has not changed")
		}
	}
}

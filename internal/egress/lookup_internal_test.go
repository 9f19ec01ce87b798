package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// onOnePort listens on a port for both protocols. A port that is free for one can be taken for the other.
func onOnePort(t *testing.T) (*net.UDPConn, net.Listener) {
	t.Helper()
	var last error
	for range 20 {
		u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", u.LocalAddr().String())
		if err == nil {
			return u, l
		}
		_, last = u.Close(), err
	}
	t.Fatal(last)
	return nil, nil
}

// longAnswers starts a DNS server that answers each question for addresses of IPv4 with so many private ones, by
// TCP alone.
func longAnswers(t *testing.T, count int) netip.AddrPort {
	t.Helper()
	u, l := onOnePort(t)
	t.Cleanup(func() { _, _ = u.Close(), l.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(addresses(buf[:n], -1), from)
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var head [2]byte
				_, _ = io.ReadFull(c, head[:])
				question := make([]byte, binary.BigEndian.Uint16(head[:]))
				_, _ = io.ReadFull(c, question)
				answer := addresses(question, count)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			}()
		}
	}()
	return u.LocalAddr().(*net.UDPAddr).AddrPort()
}

// addresses answers a question with so many addresses; -1: the answer does not fit, and TCP is to be used.
func addresses(question []byte, count int) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Truncated, m.Additionals = true, true, count < 0, nil
	a := netip.MustParseAddr("10.0.0.0")
	for n := 0; n < count && q.Type == dnsmessage.TypeA; n++ {
		a = a.Next()
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: a.As4()}})
	}
	out, _ := m.Pack()
	return out
}

// TestManyAddresses: of a name with many addresses only some are tried, and its answer is charged to the sandbox.
func TestManyAddresses(t *testing.T) {
	d := newDialer(Config{DNS: longAnswers(t, 200)}, 10*time.Second)
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
	if _, err = d.connect(withEffort(t.Context(), effort), "many.kit.test", 443); err == nil {
		t.Error("a private address was reached")
	}
	if rest, least := effort.Spend(0), 200*16*backend.CostAnswerByte; rest < least {
		t.Errorf("the sandbox rests for %s, want at least %s", rest, least)
	}
}

// TestLongAnswer: an answer with thousands of addresses is not used. Each of them took the server 20 µs.
func TestLongAnswer(t *testing.T) {
	d := newDialer(Config{DNS: longAnswers(t, 4000)}, 10*time.Second)
	_, err := d.connect(t.Context(), "long.kit.test", 443)
	if _, ok := errors.AsType[*net.DNSError](err); !ok {
		t.Errorf("got %v, want that the name could not be resolved", err)
	}
}

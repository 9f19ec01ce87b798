package egress_test

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func question(t testing.TB, name string, typ dnsmessage.Type, class dnsmessage.Class) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 0x1234, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: must(dnsmessage.NewName(name)), Type: typ, Class: class}},
	}
	return must(m.Pack())
}

// udp sends a datagram to the sandbox's DNS and returns the answer; nil: none
// came in a moment.
func (b *box) udp(msg []byte) []byte {
	b.t.Helper()
	c, err := net.Dial("udp", b.dns.String())
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(msg); err != nil {
		b.t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 65535)
	n, err := c.Read(buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

func TestDNS(t *testing.T) {
	out := egress.NewNameServer(t, map[string][][]string{"api.kit.test": {{"93.184.215.14"}}, "other.kit.test": {{"93.184.215.14"}}})
	b := newBox(t, setup{open: []string{"api.kit.test", "*.wild.test"}, resolve: out.At()})
	const (
		in      = dnsmessage.ClassINET
		yes     = dnsmessage.RCodeSuccess
		no      = dnsmessage.RCodeNameError
		refused = dnsmessage.RCodeRefused
	)
	first := b.lookup("api.kit.test")
	for _, c := range []struct {
		name  string
		typ   dnsmessage.Type
		class dnsmessage.Class
		code  dnsmessage.RCode
		want  string // the address, if there is one
	}{
		{"api.kit.test.", dnsmessage.TypeA, in, yes, first},
		{"aPi.KIT.test.", dnsmessage.TypeA, in, yes, first},
		{"api.kit.test.", dnsmessage.TypeAAAA, in, yes, ""},
		{"api.kit.test.", dnsmessage.TypeTXT, in, yes, ""},
		{"api.kit.test.", dnsmessage.TypeMX, in, yes, ""},
		{"api.kit.test.", dnsmessage.TypeALL, in, yes, ""},
		{"api.kit.test.", 65, in, yes, ""}, // HTTPS, which carries keys for ECH
		{"api.kit.test.", dnsmessage.TypeAXFR, in, refused, ""},
		{"api.kit.test.", dnsmessage.TypeA, dnsmessage.ClassCHAOS, refused, ""},
		{"x.wild.test.", dnsmessage.TypeA, in, yes, "198.18.0.2"},
		{"wild.test.", dnsmessage.TypeA, in, no, ""},
		{"xwild.test.", dnsmessage.TypeA, in, no, ""},
		{"other.kit.test.", dnsmessage.TypeA, in, no, ""},
		{"a.api.kit.test.", dnsmessage.TypeA, in, no, ""},
		{"api.kit.test.evil.test.", dnsmessage.TypeA, in, no, ""},
		{"other.kit.test.", dnsmessage.TypeTXT, in, no, ""},
		{"other.kit.test.", dnsmessage.TypeAXFR, in, refused, ""},
		{"version.bind.", dnsmessage.TypeTXT, dnsmessage.ClassCHAOS, refused, ""},
		{".", dnsmessage.TypeNS, in, no, ""},
		{"1.0.0.127.in-addr.arpa.", dnsmessage.TypePTR, in, no, ""},
		{"api_kit.test.", dnsmessage.TypeA, in, no, ""},
		{"127.0.0.1.", dnsmessage.TypeA, in, no, ""},
		{"localhost.", dnsmessage.TypeA, in, yes, "127.0.0.1"},
		{"LocalHost.", dnsmessage.TypeAAAA, in, yes, "::1"},
		{"x.localhost.", dnsmessage.TypeA, in, yes, "127.0.0.1"},
		{"localhost.", dnsmessage.TypeTXT, in, yes, ""},
	} {
		var m dnsmessage.Message
		if err := m.Unpack(b.udp(question(t, c.name, c.typ, c.class))); err != nil {
			t.Errorf("%s %v: %v", c.name, c.typ, err)
			continue
		}
		got := ""
		for _, a := range m.Answers {
			switch r := a.Body.(type) {
			case *dnsmessage.AResource:
				got += netip.AddrFrom4(r.A).String()
			case *dnsmessage.AAAAResource:
				got += netip.AddrFrom16(r.AAAA).String()
			default:
				got += fmt.Sprintf("%T", r)
			}
		}
		if m.RCode != c.code || got != c.want || m.ID != 0x1234 || !m.Response || len(m.Questions) != 1 || m.Questions[0].Name.String() != c.name {
			t.Errorf("%s %v: got %v %q in %+v, want %v %q", c.name, c.typ, m.RCode, got, m, c.code, c.want)
		}
	}
	if heard := out.Names(); len(heard) != 0 {
		t.Errorf("the resolver outside heard %v, want nothing", heard)
	}
	b.wantDenied("other.kit.test", 0, "not open")
	for _, e := range b.link.Report(false).Denied {
		if strings.HasSuffix(e.Host, "arpa") || strings.Contains(e.Host, "localhost") {
			t.Errorf("denied: got %+v", e)
		}
	}
}

// TestOddQuestionsAreTold: the report has a DNS question that is refused for its form or kind, because such a question
// may carry data.
func TestOddQuestionsAreTold(t *testing.T) {
	b := newBox(t, setup{open: []string{"api.kit.test"}})
	for _, msg := range [][]byte{
		question(t, "transfer.leak.test.", dnsmessage.TypeAXFR, dnsmessage.ClassINET),
		question(t, "chaos.leak.test.", dnsmessage.TypeTXT, dnsmessage.ClassCHAOS),
		question(t, "data.leak.arpa.", dnsmessage.TypeA, dnsmessage.ClassINET),
		question(t, "4.3.2.1.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.ClassINET),
	} {
		b.udp(msg)
	}
	update := question(t, "update.leak.test.", dnsmessage.TypeSOA, dnsmessage.ClassINET)
	update[2] |= 5 << 3
	b.udp(update)
	two := question(t, "two.leak.test.", dnsmessage.TypeA, dnsmessage.ClassINET)
	two[5] = 2
	b.udp(append(two, two[12:]...))
	b.wantDenied("transfer.leak.test", 0, "this kind of question is refused")
	b.wantDenied("chaos.leak.test", 0, "this kind of question is refused")
	b.wantDenied("data.leak.arpa", 0, "not open")
	b.wantDenied("dns", 53, "it is not one question")
	for _, e := range b.link.Report(false).Denied {
		if strings.HasSuffix(e.Host, "in-addr.arpa") {
			t.Errorf("got %+v, want no reverse lookup", e)
		}
		if e.Host == "dns" && e.Times != 2 {
			t.Errorf("got %+v, want 2 times", e)
		}
	}
}

// TestDNSLookupCountsOnce: a program's lookup asks for A and AAAA, and is one time.
func TestDNSLookupCountsOnce(t *testing.T) {
	b := newBox(t, setup{})
	for range 3 {
		for _, typ := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeA} {
			b.udp(question(t, "x.test.", typ, dnsmessage.ClassINET))
		}
	}
	r := b.link.Report(true)
	if len(r.Denied) != 1 || r.Denied[0].Times < 3 || r.Denied[0].Times > 4 {
		t.Errorf("got %+v, want one entry of 3 times, or 4 as AAAA came first", r.Denied)
	}
	if r = b.link.Report(false); len(r.Denied)+len(r.Allowed) != 0 || r.Bytes != 0 {
		t.Errorf("after a reset: got %+v", r)
	}
}

// TestAttackTunnel: names carry nothing out, whatever is asked, also when names
// below a wildcard are open: they are resolved when they are dialled and not
// before.
func TestAttackTunnel(t *testing.T) {
	out := egress.NewNameServer(t, nil)
	b := newBox(t, setup{open: []string{"api.kit.test", "*.wild.test"}, resolve: out.At(), caps: egress.Caps{Questions: 1e6, Names: 50}})
	for i := range 300 {
		data := strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(fmt.Appendf(nil, "secret part %d", i)))
		for _, typ := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeTXT, dnsmessage.TypeCNAME, dnsmessage.TypeNS, dnsmessage.TypeMX, dnsmessage.TypeALL} {
			for _, parent := range []string{"leak.test.", "api.kit.test.", "wild.test.", "arpa."} {
				b.udp(question(t, data+"."+parent, typ, dnsmessage.ClassINET))
			}
		}
	}
	if heard := out.Names(); len(heard) != 0 {
		t.Errorf("the resolver outside heard %d names, such as %s", len(heard), heard[0])
	}
	r := b.link.Report(false)
	if len(r.Denied) > 200 || r.OtherDenied < 1000 {
		t.Errorf("denied: got %d entries and %d others, want at most 200 and the rest", len(r.Denied), r.OtherDenied)
	}
}

// TestNamesCap: below a wildcard a program can choose names without end; so many
// have an address.
func TestNamesCap(t *testing.T) {
	b := newBox(t, setup{open: []string{"*.wild.test"}, caps: egress.Caps{Names: 3}})
	seen := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "a", "b"} {
		seen[b.lookup(name+".wild.test")] = true
	}
	if len(seen) != 3 {
		t.Errorf("three names have the addresses %v", seen)
	}
	var m dnsmessage.Message
	if err := m.Unpack(b.udp(question(t, "d.wild.test.", dnsmessage.TypeA, dnsmessage.ClassINET))); err != nil || m.RCode != dnsmessage.RCodeServerFailure || len(m.Answers) != 0 {
		t.Errorf("the fourth: got %+v, %v, want a failure", m, err)
	}
	b.wantDenied("d.wild.test", 0, "too many names")
}

// TestDNSGarbage: what is no question gets no answer or a short one.
func TestDNSGarbage(t *testing.T) {
	b := newBox(t, setup{open: []string{"api.kit.test"}})
	good := question(t, "api.kit.test.", dnsmessage.TypeA, dnsmessage.ClassINET)
	answer := append([]byte{}, good...)
	answer[2] |= 0x80
	two := append([]byte{}, good...)
	two[5] = 2
	notify := append([]byte{}, good...)
	notify[2] |= 0x20
	loop := append(append([]byte{}, good[:12]...), 0xc0, 12, 0, 1, 0, 1)
	records := append([]byte{}, good...)
	records[11] = 5
	for range 5 {
		records = append(records, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0)
	}
	for _, c := range []struct {
		name string
		msg  []byte
		want int // response code; -1: no answer
	}{
		{"short", good[:5], -1},
		{"empty", nil, -1},
		{"an answer", answer, -1},
		{"two questions", two, int(dnsmessage.RCodeFormatError)},
		{"no question", append([]byte{0x12, 0x34, 1}, make([]byte, 9)...), int(dnsmessage.RCodeFormatError)},
		{"many records", records, int(dnsmessage.RCodeFormatError)},
		{"a loop", loop, int(dnsmessage.RCodeFormatError)},
		{"cut", good[:20], int(dnsmessage.RCodeFormatError)},
		{"notify", notify, int(dnsmessage.RCodeNotImplemented)},
	} {
		if c.want < 0 {
			// Nothing is to come: a good question sent after it is answered first.
			conn := must(net.Dial("udp", b.dns.String()))
			_, _ = conn.Write(c.msg)
			_, _ = conn.Write(good)
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			buf := make([]byte, 1500)
			n, err := conn.Read(buf)
			_ = conn.Close()
			if err != nil || n < 40 || buf[3]&15 != 0 {
				t.Errorf("%s: got %x, %v, want the answer to the next question", c.name, buf[:n], err)
			}
			continue
		}
		got := b.udp(c.msg)
		if len(got) < 12 || int(got[3]&15) != c.want || got[0] != 0x12 || got[1] != 0x34 {
			t.Errorf("%s: got %x, want code %d", c.name, got, c.want)
		}
	}
}

func TestDNSOverTCP(t *testing.T) {
	b := newBox(t, setup{open: []string{"api.kit.test"}})
	c := b.through(b.net.DNSTCP[0], "8.8.8.8", 53)
	q := question(t, "api.kit.test.", dnsmessage.TypeA, dnsmessage.ClassINET)
	for range 3 { // one connection may ask again
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)); err != nil {
			t.Fatal(err)
		}
		var head [2]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Fatal(err)
		}
		msg := make([]byte, binary.BigEndian.Uint16(head[:]))
		if _, err := io.ReadFull(c, msg); err != nil {
			t.Fatal(err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(msg); err != nil || len(m.Answers) != 1 {
			t.Fatalf("got %+v, %v, want one answer", m, err)
		}
	}
	if got, err := say(c, "\x00\x05hello"); got != "" || err != nil {
		t.Errorf("garbage: got %q, %v, want the end", got, err)
	}
	long := slices.Concat(q, make([]byte, 4096))
	if got, err := say(b.through(b.net.DNSTCP[0], "8.8.8.8", 53), string(binary.BigEndian.AppendUint16(nil, uint16(len(long))))+string(long)); got != "" {
		t.Errorf("a question with more than 4096 bytes: got %q, %v, want the end", got, err)
	}
	b.wantDenied("dns", 53, "it is not one question")
}

// TestDNSExtended: a question with EDNS gets an answer with it, as resolvers want.
func TestDNSExtended(t *testing.T) {
	b := newBox(t, setup{open: []string{"api.kit.test"}})
	var m dnsmessage.Message
	if err := m.Unpack(question(t, "api.kit.test.", dnsmessage.TypeA, dnsmessage.ClassINET)); err != nil {
		t.Fatal(err)
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(1232, 0, true); err != nil {
		t.Fatal(err)
	}
	m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	var got dnsmessage.Message
	if err := got.Unpack(b.udp(must(m.Pack()))); err != nil || len(got.Answers) != 1 || len(got.Additionals) != 1 || got.Additionals[0].Header.Type != dnsmessage.TypeOPT {
		t.Errorf("got %+v, %v, want an answer and an OPT record", got, err)
	}
}

func TestDNSFlood(t *testing.T) {
	b := newBox(t, setup{open: []string{"api.kit.test"}, caps: egress.Caps{Questions: 1}})
	q := question(t, "api.kit.test.", dnsmessage.TypeA, dnsmessage.ClassINET)
	c := must(net.Dial("udp", b.dns.String()))
	defer c.Close()
	for range 20 {
		_, _ = c.Write(q)
	}
	b.wantDenied("dns", 53, "too many questions")
}

// TestHeldName: where a name may be asked for, it has an address, so that its
// connections can be held.
func TestHeldName(t *testing.T) {
	answers := make(chan bool)
	held := func(ctx context.Context, _ egress.Ask) egress.Verdict {
		select {
		case ok := <-answers:
			return egress.Verdict{Allowed: ok, Rule: "a person", Reason: "a person said no"}
		case <-ctx.Done():
			return egress.Verdict{Reason: "nobody answered"}
		}
	}
	site := newSite(t, false)
	b := newBox(t, setup{hold: held, sites: map[string]string{"new.kit.test:80": site.addr()}})
	got := make(chan string)
	ask := func() {
		out, _ := say(b.toName("new.kit.test", 80), "GET / HTTP/1.1\r\nHost: new.kit.test\r\n\r\n")
		got <- out
	}
	go ask()
	answers <- true
	if out := <-got; !strings.HasPrefix(out, "HTTP/1.1 200 ") {
		t.Errorf("after a yes: got %q", out)
	}
	go ask()
	answers <- false
	if out := <-got; !strings.HasPrefix(out, "HTTP/1.1 403 ") || !strings.Contains(out, "a person said no") {
		t.Errorf("after a no: got %q", out)
	}
	b.wantDenied("new.kit.test", 80, "a person said no")

	// A program that goes away takes its question with it.
	c := b.proxy()
	if _, err := io.WriteString(c, "CONNECT gone.kit.test:443 HTTP/1.1\r\nHost: gone.kit.test:443\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	b.wantDenied("gone.kit.test", 443, "nobody answered")

	// And so does the end of the link.
	done := make(chan error)
	c = b.proxy()
	go func() {
		_, err := say(c, "CONNECT last.kit.test:443 HTTP/1.1\r\nHost: last.kit.test:443\r\n\r\n")
		done <- err
	}()
	testkit.Until(t, "the policy is asked for the fourth time", func() bool { return len(b.rules.asks()) >= 4 })
	b.link.Close()
	if err := <-done; errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an end", err)
	}
}

func (r *rules) asks() []egress.Ask {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]egress.Ask{}, r.asked...)
}

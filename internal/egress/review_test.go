package egress_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// TestReview: what is not open any more is cut, and the rest goes on.
func TestReview(t *testing.T) {
	echo := func() string {
		return server(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	}
	b := newBox(t, setup{open: []string{"a.kit.test:99", "b.kit.test:99"}, ports: []int{99}, sites: map[string]string{"a.kit.test:99": echo(), "b.kit.test:99": echo()}})
	a, c := b.toName("a.kit.test", 99), b.toName("b.kit.test", 99)
	both := func() (first, second error) {
		one := func(c io.ReadWriter) error {
			if _, err := c.Write([]byte{0, 1, 2}); err != nil {
				return err
			}
			_, err := io.ReadFull(c, make([]byte, 3))
			return err
		}
		return one(a), one(c)
	}
	if first, second := both(); first != nil || second != nil {
		t.Fatal(first, second)
	}
	b.link.Review(func(ask egress.Ask) bool {
		return ask.Host == "b.kit.test" && ask.Port == 99 && ask.Via == egress.ViaTCP
	})
	if first, second := both(); first == nil || second != nil {
		t.Errorf("after the review: got %v and %v, want the first cut", first, second)
	}
	b.wantDenied("a.kit.test", 99, "was ended")
}

// TestPrivateHostsAreCut: connections to hosts that may not have a private address any more are cut, and the rest goes on.
func TestPrivateHostsAreCut(t *testing.T) {
	names := []string{"a.kit.test", "b.kit.test"}
	var private []sandboxmcp.Domain
	s := setup{resolve: egress.NewNameServer(t, map[string][][]string{names[0]: {{"127.0.0.1"}}, names[1]: {{"127.0.0.1"}}}).At()}
	for _, n := range names {
		at := netip.MustParseAddrPort(server(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
		place := n + ":" + portText(at.Port())
		s.open, s.private, s.ports = append(s.open, place), append(s.private, place), append(s.ports, int(at.Port()))
		private = append(private, domain(t, place))
	}
	b := newBox(t, s)
	a, c := b.toName(names[0], s.ports[0]), b.toName(names[1], s.ports[1])
	echo := func(c net.Conn) error {
		_, _ = c.Write([]byte{0, 1, 2})
		_, err := io.ReadFull(c, make([]byte, 3))
		return err
	}
	if first, second := echo(a), echo(c); first != nil || second != nil {
		t.Fatal(first, second)
	}
	b.proxyOf.SetPrivate(private[1:])
	b.link.Cut(func(egress.Ask) bool { return true })
	if first, second := echo(a), echo(c); first == nil || second != nil {
		t.Errorf("after the cut: got %v and %v, want the first cut", first, second)
	}
	b.wantDenied(names[0], s.ports[0], "was ended")
}

// TestKindsOfRefusals: a result says of each refusal whether the host is closed, has a special address, or was refused for
// another reason, by its latest attempt.
func TestKindsOfRefusals(t *testing.T) {
	at := netip.MustParseAddrPort(server(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	port := int(at.Port())
	out := egress.NewNameServer(t, map[string][][]string{"priv.kit.test": {{"127.0.0.1"}}})
	b := newBox(t, setup{
		open:  []string{"a.kit.test:" + portText(at.Port()), "priv.kit.test", "odd.kit.test"},
		ports: []int{port}, resolve: out.At(), sites: map[string]string{"a.kit.test:" + portText(at.Port()): at.String()},
	})
	c := b.toName("a.kit.test", port)
	_, _ = c.Write([]byte{0})
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	b.link.Cut(func(egress.Ask) bool { return false })
	for _, host := range []string{"other.kit.test", "priv.kit.test"} {
		_, _ = say(b.proxy(), "GET http://"+host+"/ HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	}
	_, _ = say(b.toName("odd.kit.test", 80), "GET / HTTP/2.0\r\nHost: odd.kit.test\r\n\r\n")
	got := map[string]sandboxmcp.Denial{}
	for _, d := range b.link.Report(false).Network().Denied {
		got[d.Host] = d.Denial
	}
	want := map[string]sandboxmcp.Denial{
		"a.kit.test": sandboxmcp.DenialClosed, "other.kit.test": sandboxmcp.DenialClosed, "priv.kit.test": sandboxmcp.DenialAddress, "odd.kit.test": sandboxmcp.DenialOther,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReviewMeanwhile: what was allowed before a review and is connected after it
// is decided anew.
func TestReviewMeanwhile(t *testing.T) {
	s := newSite(t, false)
	asked, review := make(chan bool), make(chan bool)
	var times atomic.Int32
	b := newBox(t, setup{sites: map[string]string{"a.kit.test": s.addr()}, hold: func(context.Context, egress.Ask) egress.Verdict {
		if times.Add(1) > 1 {
			return egress.Verdict{Reason: "not any more"}
		}
		asked <- true
		<-review
		return egress.Verdict{Allowed: true}
	}})
	done := make(chan string)
	c := b.proxy()
	go func() {
		got, _ := say(c, "GET http://a.kit.test/ HTTP/1.1\r\nHost: a.kit.test\r\n\r\n")
		done <- got
	}()
	<-asked
	b.link.Review(func(egress.Ask) bool { return false })
	close(review)
	if got := <-done; !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("got %q, want it refused", got)
	}
	if len(s.asked()) != 0 {
		t.Errorf("the site was asked: %v", s.asked())
	}
	b.wantDenied("a.kit.test", 80, "not any more")
	b.wantAllowed()
}

// isRefused reports whether a connection is closed before anything is written to it. It waits longer if that is expected.
func isRefused(c net.Conn, expected bool) bool {
	wait := 100 * time.Millisecond
	if expected {
		wait = time.Minute
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	_, err := c.Read(make([]byte, 1))
	return !isDeadline(err)
}

// TestConnectionsOfAll: the sandboxes together take no more than there is.
func TestConnectionsOfAll(t *testing.T) {
	a := newBox(t, setup{ports: []int{99}, caps: egress.Caps{All: 3, Conns: 3, Head: time.Hour}})
	other := &backend.Network{TCP: map[int]net.Listener{99: newQueue()}}
	link := a.proxyOf.Attach(other, a.rules)
	t.Cleanup(link.Close)
	for i, tc := range []struct {
		to      net.Listener
		refused bool
	}{{a.net.TCP[80], false}, {a.net.TCP[80], false}, {other.TCP[99], false}, {other.TCP[99], true}, {a.net.TCP[80], true}} {
		if c := a.through(tc.to, "1.2.3.4", 99); isRefused(c, tc.refused) != tc.refused {
			t.Errorf("connection %d: got refused %v", i, !tc.refused)
		}
	}
}

// TestSandboxesLeaveOthersConnections: sandboxes that hold all connections keep no other one from its first.
func TestSandboxesLeaveOthersConnections(t *testing.T) {
	a := newBox(t, setup{caps: egress.Caps{All: 16, Conns: 16, Head: time.Hour}})
	other := &backend.Network{TCP: map[int]net.Listener{80: newQueue()}}
	link := a.proxyOf.Attach(other, a.rules)
	t.Cleanup(link.Close)
	var last net.Conn // is refused, after the others were accepted
	for range 17 {
		last = a.through(a.net.TCP[80], "1.2.3.4", 80)
	}
	_ = last.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := last.Read(make([]byte, 1)); isDeadline(err) {
		t.Fatal("got 17 connections, want 16")
	}
	for i, want := range []bool{false, false, true} {
		c := a.through(other.TCP[80], "1.2.3.4", 80)
		if got := isRefused(c, want); got != want {
			t.Errorf("connection %d: got refused %v, want %v", i, got, want)
		}
	}
}

// TestAllowedFlood: destinations that found no place are told of in a result.
func TestAllowedFlood(t *testing.T) {
	n := egress.Report{Allowed: []egress.Entry{{Host: "a.kit.test", Port: 80}}, OtherAllowed: 7}.Network()
	if len(n.Allowed) != 2 || n.Allowed[1] != "others, 7 times: too many to list" {
		t.Errorf("got %q", n.Allowed)
	}
}

// TestManyFields: what a head takes of memory is not many times its bytes.
func TestManyFields(t *testing.T) {
	w := newWorld(t)
	for n, want := range map[int]string{127: "200", 128: "400"} { // and Host
		var fields strings.Builder
		for i := range n {
			fmt.Fprintf(&fields, "x%d:\r\n", i)
		}
		got, _ := say(w.proxy(), "GET http://api.kit.test/ HTTP/1.1\r\nHost: api.kit.test\r\n"+fields.String()+"\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%d fields: got %q, want %s", n, got, want)
		}
	}
}

// TestManyFieldsOfAnswers: neither is what the head of an answer takes, also while its end does not
// come. A body may have any number of lines.
func TestManyFieldsOfAnswers(t *testing.T) {
	answers := map[string]struct{ text, want string }{
		"some":    {"HTTP/1.1 200 OK\r\n" + numberedFields(1000) + "Content-Length: 2\r\n\r\nok", "200"},
		"many":    {"HTTP/1.1 200 OK\r\n" + numberedFields(2000) + "Content-Length: 2\r\n\r\nok", "502"},
		"noend":   {"HTTP/1.1 200 OK\r\n" + numberedFields(20_000), "502"},
		"interim": {strings.Repeat("HTTP/1.1 103 Early Hints\r\n"+numberedFields(900)+"\r\n", 7) + "HTTP/1.1 200 OK\r\n\r\n", "502"},
		"body":    {"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("\n", 20_000), "200"},
		"chunks":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n\n\r\n", 20_000) + "0\r\n\r\n", "200"},
	}
	sites := map[string]string{}
	for name, a := range answers {
		sites[name+".kit.test:80"] = server(t, func(c *net.TCPConn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, a.text)
			if name == "noend" {
				_, _ = c.Read(make([]byte, 1)) // until the proxy has closed the connection
			}
		})
	}
	b := newBox(t, setup{open: []string{"*.kit.test"}, sites: sites})
	for name, a := range answers {
		got, err := say(b.proxy(), "GET http://"+name+".kit.test/ HTTP/1.1\r\nHost: "+name+".kit.test\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 "+a.want) || a.want == "200" && len(got) < 10 {
			t.Errorf("%s: got %.40q of %d bytes, %v, want %s", name, got, len(got), err, a.want)
		}
		if strings.HasPrefix(name, "body") && strings.Count(got, "\n") < 20_000 {
			t.Errorf("%s: got %d lines, want 20000", name, strings.Count(got, "\n"))
		}
	}
}

func numberedFields(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "x%d:\r\n", i)
	}
	return all.String()
}

package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// forward serves the proxy of a network, and returns how to connect to it.
func forward(t *testing.T, d *egress.Dialer) (*egress.Forwarder, func() net.Conn) {
	t.Helper()
	l, tcp := listen(t), listen(t)
	f := egress.Forward(t.Context(), &backend.Network{Proxy: l, TCP: map[int]net.Listener{80: tcp}}, d)
	t.Cleanup(func() { f.Close(); _ = l.Close() })
	if c, err := net.DialTimeout("tcp", tcp.Addr().String(), time.Second); err == nil {
		_ = c.Close()
		t.Error("port 80 is served, want only the proxy")
	}
	return f, func() net.Conn {
		c := must(net.Dial("tcp", l.Addr().String()))
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		return c
	}
}

// reply is the head of an answer.
type reply struct {
	StatusCode int
	Status     string
	Header     http.Header
}

// ask sends the head of a request and returns the head of the answer.
func ask(t *testing.T, c net.Conn, head string) reply {
	t.Helper()
	if _, err := io.WriteString(c, head+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%s: got %v, want an answer", head, err)
	}
	_ = r.Body.Close()
	return reply{r.StatusCode, r.Status, r.Header}
}

func TestForwarderChecksAddresses(t *testing.T) {
	open, closed := newSite(t, false), newSite(t, false)
	f, dial := forward(t, egress.NewDialer(5*time.Second, []string{open.addr()}))
	_, port, _ := net.SplitHostPort(closed.addr())
	if r := ask(t, dial(), "GET http://"+open.addr()+"/ HTTP/1.1\r\nHost: x.test\r\nUpgrade: websocket\r\nConnection: Upgrade"); r.StatusCode != http.StatusOK || f.Refused(r.Header.Get) {
		t.Errorf("an open host: got %s, want its answer", r.Status)
	}
	for _, host := range []string{closed.addr(), "localhost:" + port, "LOCALHOST.:" + port, "x.localhost:" + port, "[::ffff:127.0.0.1]:" + port, "0.0.0.0:" + port, "169.254.169.254:80", "10.0.0.1:80"} {
		for _, head := range []string{"CONNECT " + host + " HTTP/1.1\r\nHost: " + host, "GET http://" + host + "/ HTTP/1.1\r\nHost: " + host, "GET http://" + host + "/ HTTP/1.1\r\nHost: " + open.addr()} {
			r := ask(t, dial(), head)
			if blocked, ok := errors.AsType[*egress.BlockedError](f.Failure(host)); r.StatusCode != http.StatusForbidden || !f.Refused(r.Header.Get) || !ok {
				t.Errorf("%.40s: got %s, %v; want a refusal", head, r.Status, blocked)
			}
		}
	}
	for _, head := range []string{"GET / HTTP/1.1\r\nHost: " + closed.addr(), "GET file:///etc/passwd HTTP/1.1\r\nHost: x", "GET ftp://" + open.addr() + "/ HTTP/1.1\r\nHost: x", "CONNECT 127.1:" + port + " HTTP/1.1\r\nHost: x", "CONNECT a_b~:80 HTTP/1.1\r\nHost: x", "GET http://u:p@" + open.addr() + "/ HTTP/1.1\r\nHost: x"} {
		if r := ask(t, dial(), head); r.StatusCode < 400 {
			t.Errorf("%.40s: got %s, want an error", head, r.Status)
		}
	}
	for _, zone := range []string{"[fe80::1%25x]:80", "[2001:db8::1%25x:%20y]:80"} { // no host, so nothing is looked for: not 403
		for _, head := range []string{"CONNECT " + zone + " HTTP/1.1\r\nHost: x", "GET http://" + zone + "/ HTTP/1.1\r\nHost: x"} {
			if r := ask(t, dial(), head); r.StatusCode != http.StatusBadGateway && r.StatusCode != http.StatusBadRequest {
				t.Errorf("%.40s: got %s, want an address with a zone to be refused as no host", head, r.Status)
			}
		}
	}
	if n := closed.connections(); n != 0 {
		t.Errorf("got %d connections to a host that is not open, want none", n)
	}
}

// A name that had a public address is checked again at each connection.
func TestForwarderStopsRebinding(t *testing.T) {
	r := egress.NewNameServer(t, map[string][][]string{"rebinds.test": {{"203.0.113.1"}, {"127.0.0.1"}, {"10.0.0.1"}}})
	site := newSite(t, false)
	_, port, _ := net.SplitHostPort(site.addr())
	d := egress.NewDialer(time.Second, nil)
	d.TestOnlyResolver(&net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var n net.Dialer
		return n.DialContext(ctx, network, r.At().String())
	}})
	f, dial := forward(t, d)
	for range 4 {
		if r := ask(t, dial(), fmt.Sprintf("CONNECT rebinds.test:%s HTTP/1.1\r\nHost: x", port)); r.StatusCode != http.StatusForbidden {
			t.Errorf("got %s, %v; want a refusal", r.Status, f.Failure("rebinds.test:"+port))
		}
	}
	if len(r.Names()) < 4 || site.connections() != 0 {
		t.Errorf("got %q and %d connections; want a question each and no connection", r.Names(), site.connections())
	}
}

// The forwarder does not connect to ports of mail servers and databases, which may take text in a TLS greeting for commands.
func TestForwarderRefusesPortsOfOthers(t *testing.T) {
	var dialed atomic.Int32
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		dialed.Add(1)
		return nil, errors.New("no name server")
	}}
	d := egress.NewDialer(time.Second, []string{"open.test:25"})
	d.TestOnlyResolver(resolver)
	f, dial := forward(t, d)
	for _, port := range []string{"22", "23", "25", "025", "110", "143", "465", "587", "993", "995", "3306", "5432", "6379", "6667", "0", "65561", "smtp"} {
		host := "mail.test:" + port
		for _, head := range []string{"CONNECT " + host + " HTTP/1.1\r\nHost: " + host, "GET http://" + host + "/ HTTP/1.1\r\nHost: " + host} {
			if r := ask(t, dial(), head); r.StatusCode < 400 {
				t.Errorf("%.40s: got %s, want a refusal", head, r.Status)
			}
		}
	}
	if n := dialed.Load(); n != 0 {
		t.Errorf("got %d DNS questions, want none", n)
	}
	if err := f.Check(t.Context(), "mail.test:25"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBlockedAddress {
		t.Errorf("Check: got %v, want blocked_address", err)
	}
	for _, host := range []string{"open.test:25", "mail.test:8443"} {
		before := dialed.Load()
		ask(t, dial(), "CONNECT "+host+" HTTP/1.1\r\nHost: "+host)
		if dialed.Load() == before {
			t.Errorf("%s: got no DNS question, want one", host)
		}
	}
}

// A tunnel carries TLS and WebSockets, and nothing else. Close ends it.
func TestForwarderTunnels(t *testing.T) {
	l := listen(t)
	got := make(chan string, 4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				p := make([]byte, 64)
				n, _ := c.Read(p)
				got <- string(p[:n])
				_, _ = io.WriteString(c, "answer")
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	f, dial := forward(t, egress.NewDialer(5*time.Second, []string{l.Addr().String()}))
	for first, want := range map[string]string{"\x16\x03\x01\x00hello": "answer", "GET /ws HTTP/1.1\r\n": "answer", "EHLO mail\r\n": "", "SSH-2.0-x\r\n": ""} {
		c := dial()
		r := ask(t, c, "CONNECT "+l.Addr().String()+" HTTP/1.1\r\nHost: x")
		if r.StatusCode != http.StatusOK {
			t.Fatalf("got %s, want 200", r.Status)
		}
		_, _ = io.WriteString(c, first)
		p := make([]byte, len("answer"))
		n, _ := io.ReadFull(c, p)
		if arrived := <-got; string(p[:n]) != want || strings.HasPrefix(arrived, "EHLO") || strings.HasPrefix(arrived, "SSH") {
			t.Errorf("%q: got %q, and the host got %q; want %q", first, p[:n], arrived, want)
		}
	}
	c := dial()
	ask(t, c, "CONNECT "+l.Addr().String()+" HTTP/1.1\r\nHost: x")
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n")
	<-got
	f.Close()
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %v, want the end of the tunnel", err)
	}
}

// TestForwarderBoundsHeads: a head that was parsed takes fifty times the memory of its bytes, and a site can keep
// all connections of a browser waiting for the end of one.
func TestForwarderBoundsHeads(t *testing.T) {
	fields := func(n, bytes int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "X-%d: %s\r\n", i, strings.Repeat("x", bytes))
		}
		return b.String()
	}
	var head string
	l := listen(t)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+head+"\r\n")
		_ = c.Close()
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	defer func() { _ = s.Close(); <-done }()
	f, dial := forward(t, egress.NewDialer(5*time.Second, []string{l.Addr().String()}))
	for name, c := range map[string]struct {
		ask, answer string
		status      int
	}{
		"usual heads":                {fields(60, 200), fields(200, 200), http.StatusOK},
		"many fields of a request":   {fields(200, 1), "", http.StatusBadGateway},
		"a long request":             {fields(50, 1000), "", http.StatusRequestHeaderFieldsTooLarge},
		"many fields of an answer":   {"", fields(1100, 1), http.StatusBadGateway},
		"an answer with a long head": {"", fields(70, 1000), http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			head = c.answer
			r := ask(t, dial(), "GET http://"+l.Addr().String()+"/ HTTP/1.1\r\nHost: x"+strings.TrimSuffix("\r\n"+c.ask, "\r\n"))
			if r.StatusCode != c.status || f.Refused(r.Header.Get) != (c.status == http.StatusBadGateway) {
				t.Errorf("got %s, want %d", r.Status, c.status)
			}
		})
	}
}

// TestForwarderChargesRequests: each request on a connection costs the sandbox a part of the server's time, also one that
// is refused.
func TestForwarderChargesRequests(t *testing.T) {
	site := newSite(t, false)
	for name, c := range map[string]struct {
		head string
		cost time.Duration
	}{
		"sent on": {"GET http://" + site.Listener.Addr().String() + "/ HTTP/1.1\r\nHost: x", backend.CostConnection},
		"refused": {"GET / HTTP/1.1\r\nHost: x", backend.CostRefusal},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			e := backend.NewEffortAt(func() time.Time { return now }, func(time.Duration, <-chan struct{}) {})
			l := listen(t)
			f := egress.Forward(t.Context(), &backend.Network{Proxy: l, Effort: e}, egress.NewDialer(5*time.Second, []string{site.Listener.Addr().String()}))
			defer func() { f.Close(); _ = l.Close() }()
			conn := must(net.Dial("tcp", l.Addr().String()))
			defer conn.Close()
			in := bufio.NewReader(conn)
			const requests = 20
			for range requests {
				_, _ = io.WriteString(conn, c.head+"\r\n\r\n")
				_ = conn.SetDeadline(time.Now().Add(patience))
				r, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
			}
			if e.Spend(backend.EffortBurst-requests/2*c.cost) == 0 {
				t.Errorf("got less than half of %d times %v, want each request to cost that", requests, c.cost)
			}
		})
	}
}

package egress_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// server runs serve for each connection to an address that it returns.
func server(t testing.TB, serve func(*net.TCPConn)) string {
	t.Helper()
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c.(*net.TCPConn))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// TestRawPort: at a named port anything may be spoken by either side first, and
// each side may end first.
func TestRawPort(t *testing.T) {
	first := server(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "220 hello\r\n")
		text, _ := io.ReadAll(c) // until the program closes its half
		_, _ = io.WriteString(c, "got "+string(text))
	})
	second := server(t, func(c *net.TCPConn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "echo "+line)
	})
	b := newBox(t, setup{open: []string{"db.kit.test:5432", "mail.kit.test:25"}, ports: []int{5432, 25}, sites: map[string]string{"mail.kit.test:25": first, "db.kit.test:5432": second}})

	c := b.toName("mail.kit.test", 25)
	br := bufio.NewReader(c)
	if line, err := br.ReadString('\n'); line != "220 hello\r\n" {
		t.Fatalf("got %q, %v, want the banner", line, err)
	}
	_, _ = io.WriteString(c, "EHLO me\r\nbye")
	_ = c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(br); string(rest) != "got EHLO me\r\nbye" || err != nil {
		t.Errorf("got %q, %v, want what was sent", rest, err)
	}
	for _, text := range []string{"\x00\x01\n", "SET a b\r\n", "hello\n", "SET \x00\xff b\r\n", "SEE HTTP/1.1 there\n", "A \xff\n", "a@b \xff\n"} {
		if got, err := say(b.toName("db.kit.test", 5432), text); got != "echo "+text || err != nil {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	// A line may come in pieces.
	c = b.toName("db.kit.test", 5432)
	_, _ = io.WriteString(c, "sl")
	time.Sleep(300 * time.Millisecond) // longer than the wait for a first byte
	if got, err := say(c, "ow\n"); got != "echo slow\n" || err != nil {
		t.Errorf("in pieces: got %q, %v, want the echo", got, err)
	}
	// Who has said all may close that half at once.
	c = b.toName("db.kit.test", 5432)
	_, _ = io.WriteString(c, "all\n")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "echo all\n" || err != nil {
		t.Errorf("half closed: got %q, %v", got, err)
	}
	// The name decides, and the port.
	if got, err := say(b.toName("mail.kit.test", 5432), "\x00\n"); got != "" || err == nil {
		t.Errorf("another port: got %q, %v, want a reset", got, err)
	}
	b.wantDenied("mail.kit.test", 5432, "not open")
	b.wantAllowed("mail.kit.test:25", "db.kit.test:5432")
	for _, a := range b.rules.asks() {
		if a.Via != egress.ViaTCP {
			t.Errorf("asked %+v, want by tcp", a)
		}
	}
}

// TestNamedPortChecks: TLS and HTTP at a named port are held to the host.
func TestNamedPortChecks(t *testing.T) {
	plain, secure, silent := newSite(t, false), newSite(t, true), server(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	wordy := server(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "hi"); _, _ = io.Copy(io.Discard, c) })
	b := newBox(t, setup{
		open: []string{"a.kit.test:8080", "s.kit.test:8080", "q.kit.test:8080", "w.kit.test:8080"}, ports: []int{8080},
		sites: map[string]string{"a.kit.test:8080": plain.addr(), "s.kit.test:8080": secure.addr(), "q.kit.test:8080": silent, "w.kit.test:8080": wordy},
	})
	if code, body := get(t, b.toName("a.kit.test", 8080), "a.kit.test:8080", "/"); code != 200 || body != "hello from a.kit.test:8080" {
		t.Errorf("HTTP: got %d %q", code, body)
	}
	if code, _ := get(t, b.toName("a.kit.test", 8080), "s.kit.test:8080", "/"); code != 403 {
		t.Errorf("HTTP for another: got %d, want 403", code)
	}
	b.wantDenied("s.kit.test", 8080, "the connection is for a.kit.test")
	for _, line := range []string{ // as some servers take it
		"GET\t/ HTTP/1.1", "GET\v/\fHTTP/1.1", " GET / HTTP/1.1", "GET\r/ HTTP/1.1 ",
		"GET /\xff HTTP/1.1", "GET /ä HTTP/1.1", "GET /\x01 HTTP/1.1", "GET /\x00\x7f HTTP/1.1", "GET / HTTP/1.1\rA: b", "\r\n \r\nGET / HTTP/1.1",
	} {
		if got, _ := say(b.toName("a.kit.test", 8080), line+"\r\nHost: s.kit.test:8080\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 sandboxmcp: the request line ") {
			t.Errorf("%q: got %q, want a refusal of ours", line, got)
		}
	}
	c, err := shake(b.toName("s.kit.test", 8080), "s.kit.test")
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, c, "s.kit.test:8080", "/"); code != 200 {
		t.Errorf("HTTPS: got %d", code)
	}
	if _, err := shake(b.toName("s.kit.test", 8080), "a.kit.test"); err == nil {
		t.Error("TLS for another: got a handshake")
	}
	b.wantDenied("a.kit.test", 8080, "the connection is for s.kit.test")

	// After a pause the same holds, when the host has not spoken and when it has.
	// The pause is over when the policy was asked.
	late := func(name, banner, text string) (string, error) {
		asked := len(b.rules.asks())
		c := b.toName(name, 8080)
		testkit.Until(t, "the policy is asked", func() bool { return len(b.rules.asks()) > asked })
		if _, err := io.ReadFull(c, make([]byte, len(banner))); err != nil {
			t.Fatalf("banner of %s: %v", name, err)
		}
		return say(c, text)
	}
	hello := string(grab(t, helloFor("a.kit.test")))
	for name, banner := range map[string]string{"q.kit.test": "", "w.kit.test": "hi"} {
		if got, _ := late(name, banner, hello); got != "\x15\x03\x01\x00\x02\x02\x31" {
			t.Errorf("late TLS for another: got %q, want the alert", got)
		}
		b.wantDenied("a.kit.test", 8080, "the connection is for "+name)
		if got, err := late(name, banner, strings.Repeat("G", 5000)); got != "" || err == nil {
			t.Errorf("late endless line: got %q, %v, want a reset", got, err)
		}
		b.wantDenied(name, 8080, "a line that does not end")
	}
	if got, _ := late("q.kit.test", "", "GET / HTTP/1.1\r\nHost: s.kit.test:8080\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("late HTTP for another: got %q, want 403", got)
	}
	if got, err := late("a.kit.test", "", "GET / HTTP/1.1\r\nHost: a.kit.test:8080\r\n\r\n"); !strings.HasSuffix(got, "hello from a.kit.test:8080") || err != nil {
		t.Errorf("late HTTP: got %q, %v, want the site", got, err)
	}
	if got, err := late("w.kit.test", "hi", "\r\nGET / HTTP/1.1\r\nHost: a.kit.test\r\n\r\n"); got != "" || err == nil {
		t.Errorf("HTTP after a banner: got %q, %v, want a reset", got, err)
	}
	b.wantDenied("w.kit.test", 8080, "after the host had spoken")
}

// TestByServerName: a connection to an address that stands for no name goes to
// the name that it says, and never to the address.
func TestByServerName(t *testing.T) {
	w := newWorld(t)
	if code, body := get(t, w.to("93.184.215.14", 80), "api.kit.test", "/"); code != 200 || body != "hello from api.kit.test" {
		t.Errorf("HTTP: got %d %q", code, body)
	}
	if code, _ := get(t, w.to("2606:4700::1111", 80), "other.kit.test", "/"); code != 403 {
		t.Errorf("HTTP for another: got %d, want 403", code)
	}
	if _, err := shake(w.to("2606:4700::1111", 443), "api.kit.test"); err != nil {
		t.Errorf("TLS: %v", err)
	}
	if _, err := shake(w.to("2606:4700::1111", 443), "other.kit.test"); err == nil {
		t.Error("TLS for another: got a handshake")
	}
	w.wantDenied("other.kit.test", 443, "not open")
	w.quiet()
}

// TestAnswers: every way in which an answer has its length comes through whole.
func TestAnswers(t *testing.T) {
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/length":
			w.Header().Set("Content-Length", "3145728")
			_, _ = w.Write(big)
		case "/chunked":
			for i := 0; i < len(big); i += 1 << 20 {
				_, _ = w.Write(big[i : i+1<<20])
				w.(http.Flusher).Flush()
			}
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/hints":
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "after")
		case "/count":
			n, _ := io.Copy(io.Discard, r.Body)
			_ = n
			_, _ = io.WriteString(w, r.Header.Get("Expect")+"counted")
		case "/early":
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	defer srv.Close()
	bare := server(t, func(c *net.TCPConn) { // a server of old: the end is the end
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\nX-Old: 1\r\n\r\n")
		_, _ = c.Write(big)
	})
	rude := server(t, func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	})
	b := newBox(t, setup{open: []string{"*.kit.test"}, sites: map[string]string{"a.kit.test:80": srv.Listener.Addr().String(), "old.kit.test:80": bare, "rude.kit.test:80": rude, "none.kit.test:80": "127.0.0.1:1"}})
	want := sha256.Sum256(big)
	for _, c := range []struct{ host, path, proto string }{{"a", "/length", "1.1"}, {"a", "/chunked", "1.1"}, {"a", "/chunked", "1.0"}, {"old", "/", "1.1"}} {
		conn := b.toName(c.host+".kit.test", 80)
		_, _ = io.WriteString(conn, "GET "+c.path+" HTTP/"+c.proto+"\r\nHost: "+c.host+".kit.test\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || sha256.Sum256(body) != want || !res.Close {
			t.Errorf("%+v: got %d bytes, %v, close %v, want all and close", c, len(body), err, res.Close)
		}
	}
	for path, text := range map[string]string{"/none": "HTTP/1.1 204 No Content\r\n", "/hints": "HTTP/1.1 200 OK\r\n"} {
		if got, err := say(b.toName("a.kit.test", 80), "GET "+path+" HTTP/1.1\r\nHost: a.kit.test\r\n\r\n"); !strings.HasPrefix(got, text) || err != nil {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, text)
		}
	}
	if got, err := say(b.toName("a.kit.test", 80), "HEAD /length HTTP/1.1\r\nHost: a.kit.test\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n") || !strings.Contains(got, "Content-Length: 3145728\r\n") || err != nil {
		t.Errorf("HEAD: got %q, %v", got, err)
	}
	if got, err := say(b.toName("rude.kit.test", 80), "GET / HTTP/1.1\r\nHost: rude.kit.test\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") || err != nil {
		t.Errorf("101: got %q, %v, want 502", got, err)
	}
	if got, err := say(b.toName("none.kit.test", 80), "GET / HTTP/1.1\r\nHost: none.kit.test\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, "refused the connection") || err != nil {
		t.Errorf("nobody there: got %q, %v, want 502", got, err)
	}
	// Large bodies of requests, with the ask for leave that curl sends.
	for _, head := range []string{"Content-Length: 3145728\r\nExpect: 100-continue\r\n", "Content-Length: 3145728\r\n"} {
		got, err := say(b.toName("a.kit.test", 80), "POST /count HTTP/1.1\r\nHost: a.kit.test\r\n"+head+"\r\n"+string(big))
		if !strings.HasSuffix(got, "\r\n\r\ncounted") || strings.Contains(head, "Expect") != strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\n") || err != nil {
			t.Errorf("%s: got %.200q, %v", head, got, err)
		}
	}
	if r := b.link.Report(false); r.Bytes < 6*3<<20 {
		t.Errorf("bytes: got %d, want at least those of the bodies", r.Bytes)
	}
}

// TestProgramGoesAway: a request whose program has gone is given up.
func TestProgramGoesAway(t *testing.T) {
	given := make(chan struct{}, 1)
	slow := server(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c) // never answers
		given <- struct{}{}
	})
	b := newBox(t, setup{open: []string{"a.kit.test"}, sites: map[string]string{"a.kit.test:80": slow}})
	for _, body := range []string{"\r\n", "Content-Length: 4\r\n\r\nabcd", "Content-Length: 4\r\n\r\nab"} {
		c := b.toName("a.kit.test", 80)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.kit.test\r\n"+body)
		_ = c.Close()
		<-given
	}
}

// TestBytesCap: a run carries so much and no more.
func TestBytesCap(t *testing.T) {
	endless := server(t, func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		block := make([]byte, 64<<10)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	b := newBox(t, setup{open: []string{"a.kit.test", "a.kit.test:8080"}, ports: []int{8080}, sites: map[string]string{"a.kit.test": endless}, caps: egress.Caps{Bytes: 5 << 20}})
	got, err := say(b.toName("a.kit.test", 80), "GET / HTTP/1.1\r\nHost: a.kit.test\r\n\r\n")
	if err == nil || len(got) > 6<<20 {
		t.Errorf("got %d bytes, %v, want a reset after 5 MiB", len(got), err)
	}
	b.wantDenied("a.kit.test", 80, "as many bytes as it may")
	b.link.Report(true)
	if got, _ := say(b.toName("a.kit.test", 80), "GET / HTTP/1.1\r\nHost: a.kit.test\r\n\r\n"); len(got) < 1<<20 {
		t.Errorf("after a reset: got %d bytes, want some again", len(got))
	}
}

// TestIdle: a connection that carries nothing ends, one that carries a little
// does not.
func TestIdle(t *testing.T) {
	drip := server(t, func(c *net.TCPConn) {
		for range 12 {
			if _, err := c.Write([]byte{'.'}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // far shorter than the idle limit, and all of it together longer
		}
		_, _ = io.Copy(io.Discard, c)
	})
	b := newBox(t, setup{open: []string{"a.kit.test:99"}, ports: []int{99}, sites: map[string]string{"a.kit.test:99": drip}, caps: egress.Caps{Idle: 500 * time.Millisecond}})
	got, err := say(b.toName("a.kit.test", 99), "\x00")
	if got != strings.Repeat(".", 12) || err == nil || isDeadline(err) {
		t.Errorf("got %q, %v, want all and then a reset", got, err)
	}
}

// TestMorePorts: ports that are opened later are served by the same link.
func TestMorePorts(t *testing.T) {
	site := newSite(t, false)
	b := newBox(t, setup{open: []string{"a.kit.test:8080"}, sites: map[string]string{"a.kit.test:8080": site.addr()}})
	b.net.TCP[8080] = newQueue()
	b.link.Serve(b.net)
	b.link.Serve(b.net)
	if code, _ := get(t, b.toName("a.kit.test", 8080), "a.kit.test:8080", "/"); code != 200 {
		t.Errorf("got %d, want the site", code)
	}
}

// TestClose: nothing of a link goes on after Close, whatever was under way.
func TestClose(t *testing.T) {
	deaf := server(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	b := newBox(t, setup{open: []string{"a.kit.test", "a.kit.test:99"}, ports: []int{99}, sites: map[string]string{"a.kit.test": deaf}})
	b.proxy()
	b.toName("a.kit.test", 443)
	relayed := b.toName("a.kit.test", 99)
	_, _ = relayed.Write([]byte{0})
	waiting := b.toName("a.kit.test", 80)
	_, _ = io.WriteString(waiting, "GET / HTTP/1.1\r\nHost: a.kit.test\r\n\r\n")
	testkit.Until(t, "both connections are allowed", func() bool { return len(b.link.Report(false).Allowed) >= 2 })
	b.link.Close()
	for _, c := range []net.Conn{relayed, waiting} {
		if _, err := io.ReadAll(c); isDeadline(err) {
			t.Error("a connection lives on")
		}
	}
	late := &backend.Network{Proxy: newQueue()}
	b.link.Serve(late)
	if _, err := late.Proxy.Accept(); err == nil {
		t.Error("a socket that came after Close is open")
	}
	b.link.Close()
}

func isDeadline(err error) bool {
	n, ok := err.(net.Error) //nolint:errorlint // as ReadAll gave it
	return ok && n.Timeout()
}

// TestReportOrder: destinations stand in the order of their first time.
func TestReportOrder(t *testing.T) {
	w := newWorld(t)
	for _, host := range []string{"b.test", "a.test", "b.test"} {
		_, _ = say(w.proxy(), "CONNECT "+host+":443 HTTP/1.1\r\nHost: "+host+":443\r\n\r\n")
	}
	_, _ = say(w.proxy(), "CONNECT "+strings.Repeat("\x01", 3)+" HTTP/1.1\r\n\r\n")
	_, _ = get(t, w.proxy(), "api.kit.test", "http://api.kit.test/")
	n := w.link.Report(false).Network()
	if len(n.Denied) != 3 || n.Denied[0].Host != "b.test" || n.Denied[0].Times != 2 || n.Denied[1].Host != "a.test" || n.Denied[0].Reason == "" {
		t.Errorf("denied: got %+v", n.Denied)
	}
	if !slices.Equal(n.Allowed, []string{"api.kit.test:80"}) {
		t.Errorf("allowed: got %v", n.Allowed)
	}
}

// TestKernelRefusals: what nobody listens for is in the report, by the name that
// its address stands for, each time once.
func TestKernelRefusals(t *testing.T) {
	b := newBox(t, setup{open: []string{"api.kit.test"}})
	at := func(a string, port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(a), port) }
	next := []backend.Refusal{
		{Network: "tcp", Address: at(b.lookup("api.kit.test"), 22), Count: 3},
		{Network: "udp", Address: at("8.8.8.8", 443), Count: 1},
		{Network: "tcp", Address: at("::1", 9), Count: 1},
		{Network: "tcp", Address: at("127.0.0.1", 9), Count: 1},
	}
	b.net.Refused = func() ([]backend.Refusal, int) {
		defer func() { next = nil }()
		return next, len(next) / 2
	}
	b.link.Serve(b.net)
	b.wantDenied("api.kit.test", 22, "the port is not open")
	b.wantDenied("8.8.8.8", 443, "nothing but TCP")
	r := b.link.Report(false)
	if len(r.Denied) != 2 || r.Denied[0].Times != 3 || r.OtherDenied != 2 {
		t.Errorf("got %+v", r)
	}
	if n := r.Network().Denied; len(n) != 3 || n[2].Times != 2 {
		t.Errorf("as a result tells it: got %+v", n)
	}
}

// TestWeak: what is for tests is told.
func TestWeak(t *testing.T) {
	if w := egress.New(egress.Config{}).Weak(); len(w) != 0 {
		t.Errorf("got %v, want nothing", w)
	}
	w := egress.New(egress.Config{Resolve: mapping(t, "a.kit.test=127.0.0.1:1"), DNS: egress.NewNameServer(t, nil).At()}).Weak()
	if len(w) != 2 || !strings.Contains(w[0], "tests") || !strings.Contains(w[1], "tests") {
		t.Errorf("got %v, want two sentences", w)
	}
}

// TestHelloKept: every byte of a hello is passed on unchanged. The bytes after it are passed on once
// the host has answered.
func TestHelloKept(t *testing.T) {
	heard := make(chan []byte, 1)
	raw := grab(t, helloFor("a.kit.test"))
	at := server(t, func(c *net.TCPConn) {
		got := make([]byte, len(raw)+5)
		_, _ = io.ReadFull(c, got[:len(raw)])
		_, _ = c.Write(record(23, 0))
		_, _ = io.ReadFull(c, got[len(raw):])
		heard <- got
	})
	b := newBox(t, setup{open: []string{"a.kit.test"}, sites: map[string]string{"a.kit.test": at}})
	c := b.toName("a.kit.test", 443)
	want := append(slices.Clone(raw), "early"...)
	_, _ = c.Write(want)
	if got := <-heard; !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

package egress_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// TestAttackHTTP sends heads that try to mean another host, by each way in. Each
// is refused with its reason, and nobody is reached whom the policy has not
// allowed.
func TestAttackHTTP(t *testing.T) {
	const direct, proxied = "direct", "proxied"
	for _, c := range []struct {
		name, way, head string
		code            string
		host            string // in the report
		port            int
		reason          string
	}{
		{"host-of-another", direct, "GET / HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "403", "other.kit.test", 80, "the connection is for api.kit.test"},
		{"uri-of-another", direct, "GET http://other.kit.test/ HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "403", "other.kit.test", 80, "the connection is for api.kit.test"},
		{"host-not-uri", direct, "GET http://other.kit.test/ HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "api.kit.test", 80, "Host field is not the host of the request line"},
		{"uri-not-host", direct, "GET http://api.kit.test/ HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "400", "api.kit.test", 80, "Host field is not the host of the request line"},
		{"connect-at-80", direct, "CONNECT other.kit.test:443 HTTP/1.1\r\nHost: other.kit.test:443\r\n\r\n", "405", "api.kit.test", 80, "CONNECT is for the proxy"},
		{"two-hosts", direct, "GET / HTTP/1.1\r\nHost: api.kit.test\r\nHost: other.kit.test\r\n\r\n", "400", "api.kit.test", 80, "host stands twice"},
		{"no-host", direct, "GET / HTTP/1.1\r\n\r\n", "400", "api.kit.test", 80, "has no Host"},
		{"port-of-another", direct, "GET / HTTP/1.1\r\nHost: api.kit.test:8080\r\n\r\n", "403", "api.kit.test", 80, "another port"},
		{"cl-te", direct, "POST / HTTP/1.1\r\nHost: api.kit.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "400", "api.kit.test", 80, "both Content-Length and Transfer-Encoding"},
		{"cl-cl", direct, "POST / HTTP/1.1\r\nHost: api.kit.test\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", "400", "api.kit.test", 80, "content-length stands twice"},
		{"te-te", direct, "POST / HTTP/1.1\r\nHost: api.kit.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "400", "api.kit.test", 80, "transfer-encoding stands twice"},
		{"te-odd", direct, "POST / HTTP/1.1\r\nHost: api.kit.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "400", "api.kit.test", 80, "no form that is understood"},
		{"te-space", direct, "POST / HTTP/1.1\r\nHost: api.kit.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400", "api.kit.test", 80, "not a field"},
		{"te-old", direct, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400", "api.kit.test", 80, "HTTP/1.0 has no Transfer-Encoding"},
		{"cl-plus", direct, "POST / HTTP/1.1\r\nHost: api.kit.test\r\nContent-Length: +4\r\n\r\nabcd", "400", "api.kit.test", 80, "no form that is understood"},
		{"folded", direct, "GET / HTTP/1.1\r\nHost: api.kit.test\r\nX: a\r\n Host: other.kit.test\r\n\r\n", "400", "api.kit.test", 80, "folded"},
		{"bare-lf", direct, "GET / HTTP/1.1\nHost: api.kit.test\n\n", "400", "api.kit.test", 80, "CR LF"},
		{"bare-cr", direct, "GET / HTTP/1.1\r\nHost: api.kit.test\r\nX: a\rHost: other.kit.test\r\n\r\n", "400", "api.kit.test", 80, "control character"},
		{"nul-in-field", direct, "GET / HTTP/1.1\r\nHost: api.kit.test\r\nX: a\x00b\r\n\r\n", "400", "api.kit.test", 80, "control character"},
		{"empty-line-first", direct, "\r\nGET / HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "api.kit.test", 80, "request line"},
		{"two-spaces", direct, "GET  / HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "api.kit.test", 80, "request line"},
		{"http2", direct, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", "api.kit.test", 80, "only HTTP/1.0 and HTTP/1.1"},
		{"no-target", direct, "OPTIONS * HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "api.kit.test", 80, "neither a path nor an http:// URL"},
		{"other-scheme", direct, "GET ftp://api.kit.test/ HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "api.kit.test", 80, "neither a path nor an http:// URL"},
		{"long", direct, "GET / HTTP/1.1\r\nHost: api.kit.test\r\nX: " + strings.Repeat("a", 70000) + "\r\n\r\n", "400", "api.kit.test", 80, "longer than 32 KiB"},
		{"not-http", direct, "SSH-2.0-x\r\n\r\n", "400", "api.kit.test", 80, "request line"},

		{"closed", proxied, "GET http://other.kit.test/ HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "403", "other.kit.test", 80, "not open"},
		{"proxy-host-not-uri", proxied, "GET http://api.kit.test/ HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "400", "127.0.0.1", 312, "Host field is not the host of the request line"},
		{"proxy-path", proxied, "GET / HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "127.0.0.1", 312, "has to name a host"},
		{"userinfo", proxied, "GET http://api.kit.test@other.kit.test/ HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "403", "api.kit.test@other.kit.test", 80, "no host name"},
		{"userinfo-port", proxied, "GET http://api.kit.test:80@other.kit.test/ HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "403", "api.kit.test:80@other.kit.test", 80, "no host name"},
		{"backslash", proxied, `GET http://other.kit.test\@api.kit.test/ HTTP/1.1` + "\r\nHost: api.kit.test\r\n\r\n", "400", "127.0.0.1", 312, "no form"},
		{"nul", proxied, "CONNECT api.kit.test\x00.other.kit.test:443 HTTP/1.1\r\n\r\n", "400", "127.0.0.1", 312, "request line"},
		{"percent-nul", proxied, "GET http://api.kit.test%00.other.kit.test/ HTTP/1.1\r\nHost: x.test\r\n\r\n", "400", "127.0.0.1", 312, "no form"},
		{"percent", proxied, "GET http://api%2ekit.test/ HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "127.0.0.1", 312, "no form"},
		{"full-width", proxied, "GET http://ａpi.kit.test/ HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "127.0.0.1", 312, "request line"},
		{"full-width-host", direct, "GET / HTTP/1.1\r\nHost: ａpi.kit.test\r\n\r\n", "403", `"\uff41pi.kit.test"`, 80, "no host name"},
		{"suffix", proxied, "GET http://xapi.kit.test/ HTTP/1.1\r\nHost: xapi.kit.test\r\n\r\n", "403", "xapi.kit.test", 80, "not open"},
		{"prefix", proxied, "GET http://api.kit.test.evil.test/ HTTP/1.1\r\nHost: api.kit.test.evil.test\r\n\r\n", "403", "api.kit.test.evil.test", 80, "not open"},
		{"below", proxied, "GET http://a.api.kit.test/ HTTP/1.1\r\nHost: a.api.kit.test\r\n\r\n", "403", "a.api.kit.test", 80, "not open"},
		{"parent", proxied, "GET http://kit.test/ HTTP/1.1\r\nHost: kit.test\r\n\r\n", "403", "kit.test", 80, "not open"},
		{"two-dots", proxied, "GET http://api.kit.test../ HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "403", "api.kit.test..", 80, "no host name"},
		{"port-22", proxied, "CONNECT api.kit.test:22 HTTP/1.1\r\n Host: api.kit.test:22\r\n\r\n", "400", "127.0.0.1", 312, "folded"},
		{"connect-22", proxied, "CONNECT api.kit.test:22 HTTP/1.1\r\nHost: api.kit.test:22\r\n\r\n", "403", "api.kit.test", 22, "not open"},
		{"port-wrapped", proxied, "CONNECT api.kit.test:65979 HTTP/1.1\r\nHost: api.kit.test:65979\r\n\r\n", "403", "api.kit.test:65979", 80, "no host name"}, // 443 + 65536
		{"port-zeros", proxied, "CONNECT api.kit.test:0443 HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "403", "api.kit.test:0443", 80, "no host name"},
		{"connect-no-port", proxied, "CONNECT api.kit.test HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "127.0.0.1", 312, "no port"},
		{"connect-host", proxied, "CONNECT api.kit.test:443 HTTP/1.1\r\nHost: other.kit.test:443\r\n\r\n", "400", "127.0.0.1", 312, "Host field"},
		{"connect-body", proxied, "CONNECT api.kit.test:443 HTTP/1.1\r\nHost: api.kit.test:443\r\nContent-Length: 3\r\n\r\nabc", "400", "api.kit.test", 443, "no body"},
		{"crlf", proxied, "CONNECT api.kit.test:443\r\nX: HTTP/1.1\r\nHost: other.kit.test\r\n\r\n", "400", "127.0.0.1", 312, "request line"},
		{"https-uri", proxied, "GET https://api.kit.test/ HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "400", "127.0.0.1", 312, "https goes by CONNECT"},
		{"plain-at-443", proxied, "GET http://api.kit.test:443/ HTTP/1.1\r\nHost: api.kit.test:443\r\n\r\n", "400", "api.kit.test", 443, "speaks TLS"},
	} {
		t.Run(c.way+"/"+c.name, func(t *testing.T) {
			w := newWorld(t)
			var conn net.Conn
			if c.way == direct {
				conn = w.toName("api.kit.test", 80)
			} else {
				conn = w.proxy()
			}
			got, _ := say(conn, c.head) // what comes after the answer does not matter
			if !strings.HasPrefix(got, "HTTP/1.1 "+c.code+" ") {
				t.Errorf("got %.100q, want %s", got, c.code)
			}
			w.wantDenied(c.host, c.port, c.reason)
			w.quiet()
			if n := w.api.connections(); n != 0 {
				t.Errorf("connections to the open host: got %d, want 0", n)
			}
		})
	}
}

// addresses are spellings of places that are not the internet, and of one that is.
var addresses = []string{
	"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0", "0.0.0.0", "localhost.",
	"169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xa9.254.43518", "169.254.43518", "100.100.100.200", "192.0.0.192", "168.63.129.16",
	"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fe80::1%25eth0]", "[0:0:0:0:0:ffff:7f00:1]",
	"1.1.1.1", "[2606:4700:4700::1111]", "127.0.0.1.", "①②⑦.0.0.1",
}

// TestAttackAddresses: an address is not a name, in whatever spelling, wherever
// it stands.
func TestAttackAddresses(t *testing.T) {
	w := newWorld(t, "api.kit.test", "*.kit.test")
	for _, a := range addresses {
		for _, port := range []string{"", ":80", ":8080"} {
			for _, head := range []string{
				"GET / HTTP/1.1\r\nHost: " + a + port + "\r\n\r\n",
				"GET http://" + a + port + "/ HTTP/1.1\r\nHost: " + a + port + "\r\n\r\n",
				"CONNECT " + a + port + " HTTP/1.1\r\nHost: " + a + port + "\r\n\r\n",
			} {
				for _, c := range []net.Conn{w.proxy(), w.to("1.2.3.4", 80), w.toName("api.kit.test", 80)} {
					got, _ := say(c, head)
					if !strings.HasPrefix(got, "HTTP/1.1 40") {
						t.Errorf("%q: got %.60q, want a refusal", head, got)
					}
				}
			}
		}
	}
	for _, a := range []string{"127.0.0.1", "169.254.169.254", "::1", "fd00:ec2::254", "198.18.99.99", "8.8.8.8"} {
		c := w.to(a, 8080)
		if got, err := say(c, "\x01binary"); got != "" || err == nil {
			t.Errorf("raw to %s: got %q, %v, want a reset", a, got, err)
		}
	}
	w.wantDenied("169.254.169.254", 8080, "no name stands for this address")
	w.wantDenied("198.18.99.99", 8080, "no name has this address")
	w.quiet()
	if n := w.api.connections() + w.apiTLS.connections(); n != 0 {
		t.Errorf("connections to the open host: got %d, want 0", n)
	}
	w.wantAllowed()
}

// TestAttackTLS: the server name has to be there, and to be the host.
func TestAttackTLS(t *testing.T) {
	for _, c := range []struct {
		name, sni, host, reason string
		connect                 bool
	}{
		{"other", "other.kit.test", "other.kit.test", "the connection is for api.kit.test", false},
		{"other-connect", "other.kit.test", "other.kit.test", "the connection is for api.kit.test", true},
		{"none", "", "api.kit.test", "no server name", false},
		{"none-connect", "", "api.kit.test", "no server name", true},
		{"suffix", "api.kit.test.evil.test", "api.kit.test.evil.test", "the connection is for api.kit.test", false},
		{"below", "a.api.kit.test", "a.api.kit.test", "the connection is for api.kit.test", true},
		{"underscore", "a_b.kit.test", "a_b.kit.test", "not a host name", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			conn := w.way(c.connect)
			_, err := shake(conn, c.sni)
			if alert, ok := errors.AsType[*net.OpError](err); !ok || !strings.Contains(alert.Error(), "access denied") {
				t.Errorf("handshake: got %v, want the alert access_denied", err)
			}
			w.wantDenied(c.host, 443, c.reason)
			w.quiet()
			if n := len(w.apiTLS.asked()); n != 0 {
				t.Errorf("requests at the open host: got %d, want 0", n)
			}
		})
	}
}

// way is a connection to api.kit.test, port 443.
func (w *world) way(connect bool) net.Conn {
	w.t.Helper()
	if !connect {
		return w.toName("api.kit.test", 443)
	}
	c := w.proxy()
	const ok = "HTTP/1.1 200 OK\r\n\r\n"
	if _, err := io.WriteString(c, "CONNECT api.kit.test:443 HTTP/1.1\r\nHost: api.kit.test:443\r\n\r\n"); err != nil {
		w.t.Fatal(err)
	}
	got := make([]byte, len(ok))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != ok {
		w.t.Fatalf("CONNECT: got %q, %v", got, err)
	}
	return c
}

// TestAttackECH: a hello with Encrypted Client Hello shows a name that need not
// be the one that is meant.
func TestAttackECH(t *testing.T) {
	ech := grab(t, &tls.Config{ServerName: "hidden.kit.test", EncryptedClientHelloConfigList: echList(t, "api.kit.test"), MinVersion: tls.VersionTLS13})
	plain := grab(t, helloFor("api.kit.test"))
	draft := bytes.Replace(plain, []byte{0xff, 1, 0, 1, 0}, []byte{0xff, 0xce, 0, 1, 0}, 1) // in the place of renegotiation_info
	if bytes.Equal(draft, plain) {
		t.Fatal("the hello has no renegotiation_info")
	}
	for i, raw := range [][]byte{ech, ech, draft} {
		w := newWorld(t)
		c := w.way(i == 1)
		got, _ := say(c, string(raw))
		if want := "\x15\x03\x01\x00\x02\x02\x31"; got != want {
			t.Errorf("got %q, want the alert access_denied", got)
		}
		w.wantDenied("api.kit.test", 443, "ECH")
		if n := len(w.apiTLS.asked()); n != 0 {
			t.Errorf("requests at the open host: got %d, want 0", n)
		}
	}
}

// TestAttackNameKind: a name that is there and is not a host's is none.
func TestAttackNameKind(t *testing.T) {
	raw := grab(t, helloFor("api.kit.test"))
	raw[bytes.Index(raw, []byte("api.kit.test"))-3] = 0x22
	w := newWorld(t)
	if got, _ := say(w.toName("api.kit.test", 443), string(raw)); got != "\x15\x03\x01\x00\x02\x02\x31" {
		t.Errorf("got %q, want the alert access_denied", got)
	}
	w.wantDenied("api.kit.test", 443, "no server name")
}

// TestAttackNotTLS: port 443 speaks TLS, from the first byte and in time.
func TestAttackNotTLS(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: api.kit.test\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "\x00\x00\x00\x00\x00\x00", "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00"} {
		w := newWorld(t)
		c := w.toName("api.kit.test", 443)
		if got, err := say(c, text); got != "" || err == nil {
			t.Errorf("%q: got %q, %v, want a reset", text, got, err)
		}
		w.wantDenied("api.kit.test", 443, "not TLS")
		if n := w.apiTLS.connections(); n != 0 {
			t.Errorf("connections to the open host: got %d, want 0", n)
		}
	}
}

// TestLateServerName: a hello that comes in small pieces, in several records and
// with its name at the end is read as any other.
func TestLateServerName(t *testing.T) {
	raw := grab(t, &tls.Config{ServerName: "api.kit.test", NextProtos: []string{strings.Repeat("p", 200), "http/1.1"}})
	body := raw[5:] // of one record
	var split []byte
	for len(body) > 0 {
		n := min(100, len(body))
		split = append(append(split, 22, 3, 1, 0, byte(n)), body[:n]...)
		body = body[n:]
	}
	w := newWorld(t)
	c := w.toName("api.kit.test", 443)
	for i := range split {
		if _, err := c.Write(split[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(c, answer); err != nil || answer[0] != 22 {
		t.Errorf("got %x, %v, want a handshake record of the site", answer, err)
	}
	w.wantAllowed("api.kit.test:443")
}

// TestAttackSecondRequest: a connection carries one request.
func TestAttackSecondRequest(t *testing.T) {
	w := newWorld(t)
	const two = "GET /one HTTP/1.1\r\nHost: api.kit.test\r\n\r\nGET /two HTTP/1.1\r\nHost: other.kit.test\r\n\r\n"
	got, err := say(w.toName("api.kit.test", 80), two)
	if err != nil || strings.Count(got, "HTTP/1.1 ") != 1 || !strings.Contains(got, "Connection: close") {
		t.Errorf("got %q, %v, want one answer that says close", got, err)
	}
	w.wantDenied("api.kit.test", 80, "a second request")
	got, err = say(w.proxy(), "GET http://api.kit.test/three HTTP/1.1\r\nHost: api.kit.test\r\nConnection: keep-alive\r\n\r\nGET http://other.kit.test/ HTTP/1.1\r\nHost: other.kit.test\r\n\r\n")
	if err != nil || strings.Count(got, "HTTP/1.1 ") != 1 {
		t.Errorf("got %q, %v, want one answer", got, err)
	}
	if got, want := strings.Join(w.api.asked(), ","), "GET api.kit.test /one,GET api.kit.test /three"; got != want {
		t.Errorf("at the site: got %s, want %s", got, want)
	}
	w.quiet()
}

// TestAttackSmuggling: what a body hides stays a body.
func TestAttackSmuggling(t *testing.T) {
	w := newWorld(t)
	hidden := "GET /hidden HTTP/1.1\r\nHost: other.kit.test\r\n\r\n"
	for _, head := range []string{
		"POST /p HTTP/1.1\r\nHost: api.kit.test\r\nContent-Length: 49\r\n\r\n" + hidden + "...",
		"POST /p HTTP/1.1\r\nHost: api.kit.test\r\nTransfer-Encoding: Chunked\r\n\r\n31;x=y\r\n" + hidden + "...\r\n0\r\nX-Trailer: a\r\n\r\n",
	} {
		if len(hidden) != 46 {
			t.Fatalf("the hidden request has %d bytes", len(hidden))
		}
		got, err := say(w.toName("api.kit.test", 80), head)
		if err != nil || !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("got %q, %v, want the site's answer", got, err)
		}
		if w.api.body != hidden+"..." {
			t.Errorf("body: got %q", w.api.body)
		}
	}
	// A chunk whose end is missing never becomes a whole request.
	if got, _ := say(w.toName("api.kit.test", 80), "POST /broken HTTP/1.1\r\nHost: api.kit.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"); strings.Contains(got, "200") {
		t.Errorf("a broken chunk: got %q", got)
	}
	if got, want := strings.Join(w.api.asked(), ","), "POST api.kit.test /p,POST api.kit.test /p"; got != want && got != want+",POST api.kit.test /broken" {
		t.Errorf("at the site: got %s, want %s", got, want)
	}
	w.quiet()
}

// TestHopByHop: what concerns one connection, and who is behind it, stays here.
func TestHopByHop(t *testing.T) {
	w := newWorld(t)
	got, err := say(w.proxy(), "GET http://api.kit.test/ HTTP/1.1\r\nHost: api.kit.test\r\nConnection: X-Hop, keep-alive\r\nUpgrade: websocket\r\nX-Hop: 1\r\nProxy-Authorization: Basic eA==\r\n"+
		"Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\nTE: trailers\r\nHTTP2-Settings: AA\r\nX-Mine: 1\r\n\r\n")
	if err != nil || !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, "X-Site: yes\r\n") {
		t.Errorf("got %q, %v, want the site's answer", got, err)
	}
	for _, name := range []string{"Upgrade", "X-Hop", "Proxy-Authorization", "Proxy-Connection", "Keep-Alive", "Te", "Http2-Settings", "User-Agent", "Accept-Encoding"} {
		if v, ok := w.api.head[name]; ok {
			t.Errorf("%s came to the site: %v", name, v)
		}
	}
	if w.api.head.Get("X-Mine") != "1" || w.api.head.Get("Connection") != "close" {
		t.Errorf("at the site: got %v", w.api.head)
	}
}

// TestAttackRedirect: where an open host points to is asked for like any other.
func TestAttackRedirect(t *testing.T) {
	w := newWorld(t)
	code, _ := get(t, w.toName("api.kit.test", 80), "api.kit.test", "/redirect/other.kit.test")
	if code != 302 {
		t.Errorf("got %d, want the redirect itself", code)
	}
	if code, _ = get(t, w.proxy(), "other.kit.test", "http://other.kit.test/"); code != 403 {
		t.Errorf("the second host: got %d, want 403", code)
	}
	w.wantDenied("other.kit.test", 80, "not open")
	w.quiet()
}

// TestAttackRebinding: a name that is open may point anywhere; the address that
// the socket is about to use decides.
func TestAttackRebinding(t *testing.T) {
	target := newSite(t, false)
	port := netip.MustParseAddrPort(target.addr()).Port()
	table := map[string][][]string{}
	for name, addrs := range map[string][]string{
		"loop.kit.test": {"127.0.0.1"}, "meta.kit.test": {"169.254.169.254"}, "priv.kit.test": {"10.1.2.3"}, "six.kit.test": {"fd00:ec2::254"}, "six1.kit.test": {"::1"},
		"mapped.kit.test": {"::ffff:127.0.0.1"}, "nat.kit.test": {"64:ff9b::7f00:1"}, "to4.kit.test": {"2002:7f00:1::1"}, "zero.kit.test": {"0.0.0.0"}, "both.kit.test": {"127.0.0.1", "::1"},
		"stands.kit.test": {"198.18.0.1"}, "azure.kit.test": {"168.63.129.16"},
	} {
		table[name] = [][]string{addrs}
	}
	out := egress.NewNameServer(t, table)
	b := newBox(t, setup{open: []string{"*.kit.test:" + portText(port)}, resolve: out.At(), ports: []int{int(port)}})
	for name := range table {
		got, err := say(b.proxy(), "GET http://"+name+":"+portText(port)+"/ HTTP/1.1\r\nHost: "+name+":"+portText(port)+"\r\n\r\n")
		if err != nil || !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "its address is ") {
			t.Errorf("%s: got %q, %v, want 403 that names the address", name, got, err)
		}
		b.wantDenied(name, int(port), "its address is ")
		if !strings.Contains(strings.Join(out.Names(), " "), name) {
			t.Errorf("%s: the resolver did not hear it", name)
		}
	}
	if c, err := shake(b.toName("loop.kit.test", int(port)), "loop.kit.test"); err == nil {
		t.Errorf("TLS to loopback: got %v", c.ConnectionState())
	}
	if n := target.connections(); n != 0 {
		t.Errorf("connections at the loopback site: got %d, want 0", n)
	}
	b.wantAllowed()
}

// TestRebindingBetween: the second answer of a resolver is judged as the first.
func TestRebindingBetween(t *testing.T) {
	target := newSite(t, false)
	port := netip.MustParseAddrPort(target.addr()).Port()
	out := egress.NewNameServer(t, map[string][][]string{"flip.kit.test": {{"192.0.2.1"}, {"127.0.0.1"}}})
	b := newBox(t, setup{open: []string{"flip.kit.test:" + portText(port)}, resolve: out.At()})
	for range 3 {
		_, _ = say(b.proxy(), "GET http://flip.kit.test:"+portText(port)+"/ HTTP/1.1\r\nHost: flip.kit.test:"+portText(port)+"\r\n\r\n")
	}
	b.wantDenied("flip.kit.test", int(port), "loopback")
	if n := target.connections(); n != 0 {
		t.Errorf("connections at the loopback site: got %d, want 0", n)
	}
}

// TestPrivateHosts: an operator may let a name be private, at its port alone.
func TestPrivateHosts(t *testing.T) {
	target := newSite(t, false)
	port := netip.MustParseAddrPort(target.addr()).Port()
	out := egress.NewNameServer(t, map[string][][]string{"db.kit.test": {{"127.0.0.1"}}, "x.db.kit.test": {{"127.0.0.1"}}})
	ask := func(private, name string) string {
		b := newBox(t, setup{open: []string{"*.kit.test:" + portText(port)}, private: []string{private}, resolve: out.At()})
		got, _ := say(b.proxy(), "GET http://"+name+":"+portText(port)+"/ HTTP/1.1\r\nHost: "+name+":"+portText(port)+"\r\n\r\n")
		return got[:min(len(got), 12)]
	}
	for _, c := range []struct{ private, name, want string }{
		{"db.kit.test:" + portText(port), "db.kit.test", "HTTP/1.1 200"},
		{"db.kit.test:" + portText(port), "x.db.kit.test", "HTTP/1.1 403"},
		{"db.kit.test", "db.kit.test", "HTTP/1.1 403"},                  // 80 and 443
		{"*.kit.test:" + portText(port), "db.kit.test", "HTTP/1.1 403"}, // no wildcards
	} {
		if got := ask(c.private, c.name); got != c.want {
			t.Errorf("private %s, asked for %s: got %q, want %q", c.private, c.name, got, c.want)
		}
	}
}

// TestRelayOfARelay: who hands connections on inside of a sandbox gets the same
// answers.
func TestRelayOfARelay(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		got, _ := say(w.proxy(), "CONNECT 127.0.0.1:312 HTTP/1.1\r\nHost: 127.0.0.1:312\r\n\r\nCONNECT other.kit.test:443 HTTP/1.1\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 403 ") {
			t.Errorf("got %q, want 403", got)
		}
	}
	w.wantDenied("127.0.0.1", 312, "no host name")
}

// TestSlowAndFlood: who takes its time, or opens too much, is cut off.
func TestSlowAndFlood(t *testing.T) {
	sites := map[string]string{"api.kit.test": newSite(t, false).addr()}
	slow := newBox(t, setup{open: []string{"api.kit.test"}, sites: sites, caps: egress.Caps{Head: 300 * time.Millisecond}})
	for _, c := range []struct {
		conn func() net.Conn
		text string
		host string
		port int
		why  string
	}{
		{func() net.Conn { return slow.toName("api.kit.test", 443) }, "\x16\x03\x01", "api.kit.test", 443, "in time"},
		{func() net.Conn { return slow.toName("api.kit.test", 80) }, "GET / HT", "api.kit.test", 80, "in time"},
		{slow.proxy, "CONNECT api", "127.0.0.1", 312, "in time"},
	} {
		got, _ := say(c.conn(), c.text)
		_, _ = say(c.conn(), "") // who says nothing has asked for nothing
		if strings.HasPrefix(got, "HTTP/1.1 2") {
			t.Errorf("%q: got %q", c.text, got)
		}
		slow.wantDenied(c.host, c.port, c.why)
	}

	if r := slow.link.Report(false); len(r.Denied) != 3 || r.Denied[0].Times+r.Denied[1].Times+r.Denied[2].Times != 3 {
		t.Errorf("denied: got %+v, want each once", r.Denied)
	}

	few := newBox(t, setup{open: []string{"api.kit.test"}, sites: sites, caps: egress.Caps{Conns: 3}})
	for range 3 {
		few.proxy()
	}
	if got, err := say(few.proxy(), "GET"); err == nil {
		t.Errorf("one too many: got %q, want a reset", got)
	}
	few.wantDenied("127.0.0.1", 312, "at once")

	rare := newBox(t, setup{open: []string{"api.kit.test"}, sites: sites, caps: egress.Caps{PerSecond: 1}})
	for range 2 {
		_ = rare.proxy().Close()
	}
	for range 3 {
		_, _ = say(rare.proxy(), "GET")
	}
	rare.wantDenied("127.0.0.1", 312, "a second")
}

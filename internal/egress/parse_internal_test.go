package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxmcp/sandboxmcp"
)

// one is a policy that knows one domain.
type one struct{ open sandboxmcp.Domain }

func (o one) Decide(_ context.Context, a Ask) Verdict {
	return Verdict{Allowed: o.open.Match(a.Host, a.Port)}
}
func (o one) Name(h sandboxmcp.Host) Verdict { return Verdict{Allowed: o.open.MatchHost(h)} }

func (one) Closed() (Verdict, bool) { return Verdict{}, false }

// FuzzDNS: no name but those that are open and localhost has an address, every
// answer is one that a resolver can read, to the question that was asked, and an
// address stands for one name.
func FuzzDNS(f *testing.F) {
	for _, name := range []string{"a.kit.test.", "A.Kit.Test.", "kit.test.", "other.test.", "localhost.", ".", "x\\.kit.test."} {
		for _, typ := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeTXT, 65, dnsmessage.TypeAXFR} {
			n, err := dnsmessage.NewName(name)
			if err != nil {
				f.Fatal(err)
			}
			m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: n, Type: typ, Class: dnsmessage.ClassINET}}}
			raw, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	l := newLink(New(Config{}), one{sandboxmcp.Domain{Host: "kit.test", Wild: true}}, nil)
	f.Cleanup(l.Close)
	f.Fuzz(func(t *testing.T, msg []byte) {
		out := l.answer(msg)
		if out == nil {
			return
		}
		var got dnsmessage.Message
		if err := got.Unpack(out); err != nil {
			t.Fatalf("%x gives %x, which nobody can read: %v", msg, out, err)
		}
		if !got.Response || got.ID != uint16(msg[0])<<8|uint16(msg[1]) || len(got.Questions) > 1 || len(got.Answers) > 1 || len(got.Authorities) != 0 || len(out) > 600 {
			t.Fatalf("%x gives %+v", msg, got)
		}
		if len(got.Answers) == 0 {
			return
		}
		q, a := got.Questions[0], got.Answers[0]
		h, err := sandboxmcp.ParseHost(q.Name.String())
		if err != nil || a.Header.Name != q.Name || a.Header.Type != q.Type || a.Header.Class != q.Class {
			t.Fatalf("%+v is answered with %+v", q, a)
		}
		local := h == "localhost" || strings.HasSuffix(string(h), ".localhost")
		if local {
			return
		}
		r, ok := a.Body.(*dnsmessage.AResource)
		if !ok || !l.policy.Name(h).Allowed {
			t.Fatalf("%s has the address %+v", h, a.Body)
		}
		if addr, _ := l.names.address(h); addr.As4() != r.A || !stands.Contains(addr) {
			t.Errorf("%s has %v and %v", h, addr, r.A)
		}
	})
}

// wire is what is written to it.
type wire struct {
	net.Conn
	said bytes.Buffer
}

func (w *wire) Write(p []byte) (int, error)      { return w.said.Write(p) }
func (w *wire) Read([]byte) (int, error)         { return 0, io.EOF }
func (w *wire) Close() error                     { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

func said(f *testing.F, c *tls.Config) []byte {
	f.Helper()
	w := &wire{}
	if err := tls.Client(w, c).Handshake(); err == nil {
		f.Fatal("a handshake with nobody")
	}
	return w.said.Bytes()
}

// plainName reads the server name out of a ClientHello in one record, by its own
// simple way; false: it does not know.
func plainName(raw []byte) (string, bool) {
	skip := func(n int) bool {
		if n > len(raw) {
			return false
		}
		raw = raw[n:]
		return true
	}
	take := func(size int) (int, bool) {
		if len(raw) < size {
			return 0, false
		}
		n := 0
		for _, b := range raw[:size] {
			n = n<<8 | int(b)
		}
		raw = raw[size:]
		return n, n <= len(raw)
	}
	if !skip(5 + 4 + 2 + 32) {
		return "", false
	}
	for _, size := range []int{1, 2, 1} { // session id, cipher suites, compression
		n, ok := take(size)
		if !ok || !skip(n) {
			return "", false
		}
	}
	if n, ok := take(2); !ok || n != len(raw) {
		return "", false
	}
	for len(raw) >= 4 {
		id := int(raw[0])<<8 | int(raw[1])
		skip(2)
		n, ok := take(2)
		if !ok {
			return "", false
		}
		if id == 0 && n > 5 {
			return string(raw[5:n]), true
		}
		skip(n)
	}
	return "", true
}

// FuzzHello: what is read is a beginning of what was sent, no more than is
// bounded; a name is accepted only where it stands in the hello for a second
// reader, too, and a hello that says ECH is seen to.
func FuzzHello(f *testing.F) {
	for _, name := range []string{"a.kit.test", "", strings.Repeat("a", 60) + ".kit.test"} {
		f.Add(said(f, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}))
		f.Add(said(f, &tls.Config{ServerName: name, InsecureSkipVerify: name == "", MaxVersion: tls.VersionTLS12}))
	}
	kind := said(f, &tls.Config{ServerName: "a.kit.test"})
	kind[bytes.Index(kind, []byte("a.kit.test"))-3] = 0x22 // a name that is not a host's
	f.Add(kind)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0x16, 3, 1, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := readHello(t.Context(), bytes.NewReader(raw))
		if !bytes.HasPrefix(raw, h.raw) || len(h.raw) > helloBytes {
			t.Fatalf("read %d bytes that are not those of the input", len(h.raw))
		}
		if err != nil {
			if h.name != "" || h.ech {
				t.Errorf("refused with %v and gives %+v", err, h)
			}
			return
		}
		if h.name != "" && !bytes.Contains(raw, []byte(h.name)) && len(raw) < 1<<14 {
			if _, single := plainName(h.raw); single {
				t.Errorf("the name %q is not in %x", h.name, raw)
			}
		}
		length := int(raw[3])<<8 | int(raw[4]) // of the first record
		inner := 4 + int(raw[6])<<16 + int(raw[7])<<8 + int(raw[8])
		if length == inner && len(raw) >= 5+length {
			if name, ok := plainName(raw[:5+length]); ok && h.name != "" && name != h.name { // without a name it is refused
				t.Errorf("got %q, and another reader sees %q", h.name, name)
			}
		}
	})
}

// FuzzHead: a request that is accepted has one host, and what is sent on for it
// is one request for that host with the same method and body, for a strict
// reader as for a lenient one.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a.kit.test\r\n\r\n",
		"GET http://A.kit.test./x?y#z HTTP/1.1\r\nHost: a.kit.test:80\r\nX: y\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.kit.test\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n",
		"POST / HTTP/1.1\r\nHost: a.kit.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"CONNECT a.kit.test:443 HTTP/1.1\r\nHost: a.kit.test:443\r\n\r\n",
		"GET / HTTP/1.0\r\nConnection: x-a, host\r\nX-A: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.kit.test\r\nHost: b.kit.test\r\n\r\n",
		"GET http://u:p@a.kit.test/ HTTP/1.1\r\nHost: a.kit.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.kit.test\r\nX: a\r\n b\r\n\r\n",
		"GET //other.kit.test/ HTTP/1.1\r\nHost: a.kit.test\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a.kit.test\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	l := newLink(New(Config{}), one{}, nil)
	f.Cleanup(l.Close)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := readRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil || r.Method == http.MethodConnect {
			return
		}
		v := &visit{l: l, c: &wire{}, host: r.host, port: max(r.port, 1), in: &patient{Conn: &wire{}}}
		if v.host == "" {
			if r.keepsHTTP {
				t.Fatalf("%q has no host and is accepted", raw)
			}
			v.host = "known.kit.test"
		}
		if again, err := sandboxmcp.ParseHost(string(v.host)); err != nil || again != v.host {
			t.Fatalf("%q gives the host %q", raw, v.host)
		}
		body, bodyErr := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		up := &wire{}
		if err := v.send(l.newFlow(), up, r); err != nil || bodyErr != nil {
			return // the body was not whole: the connection ends there
		}
		out := bufio.NewReader(bytes.NewReader(up.said.Bytes()))
		got, err := http.ReadRequest(out)
		if err != nil {
			t.Fatalf("%q is sent on as %q: %v", raw, up.said.String(), err)
		}
		sent, err := io.ReadAll(got.Body)
		if err != nil || !bytes.Equal(sent, body) {
			t.Errorf("%q: body %q is sent on as %q, %v", raw, body, sent, err)
		}
		if rest, _ := io.ReadAll(out); len(rest) > 0 {
			t.Errorf("%q: after the request comes %q", raw, rest)
		}
		h, _, err := splitAuthority(got.Host)
		if err != nil || h != v.host || got.Method != r.Method || !got.Close || got.RequestURI != r.target {
			t.Errorf("%q is sent on as %q", raw, up.said.String())
		}
		head, _, _ := strings.Cut(up.said.String(), "\r\n\r\n")
		lower := strings.ToLower(head)
		if strings.Count(lower, "\r\nhost:") != 1 || strings.Count(lower, "\n") != strings.Count(head, "\r\n") || strings.Contains(lower, "upgrade:") || strings.Contains(lower, "\r\nproxy-") {
			t.Errorf("%q is sent on as %q", raw, up.said.String())
		}
		names := []string{}
		for line := range strings.SplitSeq(lower, "\r\n") {
			name, _, _ := strings.Cut(line, ":")
			names = append(names, name)
		}
		if slices.Contains(names, "content-length") && slices.Contains(names, "transfer-encoding") {
			t.Errorf("%q is sent on as %q", raw, up.said.String())
		}
	})
}

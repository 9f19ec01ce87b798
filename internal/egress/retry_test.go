package egress_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// record makes a TLS record.
func record(kind byte, data ...byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind, 3, 3}, uint16(len(data))), data...)
}

// retryRequest is a ServerHello that asks for a second ClientHello, in records of at most size bytes.
func retryRequest(size int) (out []byte) {
	random := sha256.Sum256([]byte("HelloRetryRequest"))
	body := append([]byte{3, 3}, random[:]...)
	body = append(body, 0, 0x13, 1, 0, 0, 12, 0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 23)
	message := append([]byte{2, 0, 0, byte(len(body))}, body...)
	for len(message) > 0 {
		n := min(size, len(message))
		out, message = append(out, record(22, message[:n]...)...), message[n:]
	}
	return out
}

// fussy starts a host that reads a number of bytes of a connection (first) and sends answer. rest returns the bytes that
// the host gets afterwards.
func fussy(t *testing.T, first int, answer []byte) (addr string, rest func() []byte) {
	t.Helper()
	l := listen(t)
	got := make(chan []byte, 1)
	go func() {
		defer close(got)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err = io.CopyN(io.Discard, c, int64(first)); err != nil {
			return
		}
		_, _ = c.Write(answer)
		all, _ := io.ReadAll(c)
		got <- all
	}()
	return l.Addr().String(), func() []byte { return <-got }
}

func TestSecondClientHelloNamesTheSameHost(t *testing.T) {
	good, evil, unnamed := grab(t, helloFor("api.kit.test")), grab(t, helloFor("other.kit.test")), grab(t, &tls.Config{InsecureSkipVerify: true})
	early := append(record(20, 1), record(23, bytes.Repeat([]byte{0x16}, 5000)...)...)
	for _, c := range []struct {
		name   string
		answer []byte
		second []byte
		passes int // bytes of second that the host gets
	}{
		{"same name", retryRequest(1000), good, len(good)},
		{"same name after early data", retryRequest(1000), append(bytes.Clone(early), good...), len(early) + len(good)},
		{"another name", retryRequest(1000), evil, 0},
		{"another name after early data", retryRequest(1000), append(bytes.Clone(early), evil...), len(early)},
		{"no name", retryRequest(1000), unnamed, 0},
		{"request in small records", retryRequest(7), evil, 0},
		{"request after a warning", append(record(21, 1, 112), retryRequest(1000)...), evil, 0},
		{"no TLS", retryRequest(1000), []byte("GET / HTTP/1.1\r\nHost: other.kit.test\r\n\r\n"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, rest := fussy(t, len(good), c.answer)
			b := newBox(t, setup{open: []string{"api.kit.test"}, sites: map[string]string{"api.kit.test:443": addr}, caps: egress.Caps{Head: patience}})
			p := b.toName("api.kit.test", 443)
			// The program does not wait for the host, so that a check that comes too late fails the test.
			if _, err := p.Write(append(bytes.Clone(good), c.second...)); err != nil {
				t.Fatal(err)
			}
			_ = p.(*net.TCPConn).CloseWrite()
			answer := make([]byte, len(retryRequest(1000)))
			if _, err := io.ReadFull(p, answer); err != nil || !bytes.Equal(answer, c.answer[:len(answer)]) {
				t.Fatalf("answer of the host: got %x, %v, want %x", answer, err, c.answer)
			}
			if got := rest(); !bytes.Equal(got, c.second[:c.passes]) {
				t.Errorf("the host got %d bytes after the first ClientHello, want %d", len(got), c.passes)
			}
			if c.passes == 0 && bytes.Equal(c.second, evil) {
				b.wantDenied("other.kit.test", 443, "the server name is another")
			}
		})
	}
}

func TestNothingFollowsTheClientHelloInItsRecord(t *testing.T) {
	good, evil := grab(t, helloFor("api.kit.test")), grab(t, helloFor("other.kit.test"))
	b := newBox(t, setup{open: []string{"api.kit.test"}, sites: map[string]string{"api.kit.test:443": newSite(t, true).addr()}})
	_, _ = say(b.toName("api.kit.test", 443), string(record(22, append(bytes.Clone(good[5:]), evil[5:]...)...)))
	b.wantDenied("api.kit.test", 443, "not TLS")
	b.wantAllowed()
}

func TestHandshakeWithASecondClientHello(t *testing.T) {
	s := newSite(t, true)
	s.TLS.CurvePreferences = []tls.CurveID{tls.CurveP384} // for which clients send no key at first
	b := newBox(t, setup{open: []string{"api.kit.test"}, sites: map[string]string{"api.kit.test:443": s.addr()}})
	tc := tls.Client(b.toName("api.kit.test", 443), &tls.Config{ServerName: "api.kit.test", InsecureSkipVerify: true})
	if code, body := get(t, tc, "api.kit.test", "/"); code != 200 || body != "hello from api.kit.test" {
		t.Errorf("got %d %q, want the page", code, body)
	}
	if !tc.ConnectionState().HelloRetryRequest {
		t.Error("the host did not ask for a second ClientHello")
	}
}

// TestEarlyDataIsBounded: what a program sends before its second ClientHello counts, and a run that may send no more is told so.
func TestEarlyDataIsBounded(t *testing.T) {
	good := grab(t, helloFor("api.kit.test"))
	most := int64(len(good)) + 2000
	addr, rest := fussy(t, len(good), retryRequest(1000))
	b := newBox(t, setup{open: []string{"api.kit.test"}, sites: map[string]string{"api.kit.test:443": addr}, caps: egress.Caps{Bytes: most}})
	_, _ = say(b.toName("api.kit.test", 443), string(append(bytes.Clone(good), record(23, make([]byte, 5000)...)...)))
	if got := len(rest()); int64(got) >= most {
		t.Errorf("the host got %d bytes of early data, want less than %d", got, most)
	}
	b.wantDenied("api.kit.test", 443, "as many bytes as it may")
}

// TestTLSIsNotBegunTooLate: after the host has closed its side, or after the wait for the first bytes, nobody
// looks at its answers, so a second ClientHello would not be checked.
func TestTLSIsNotBegunTooLate(t *testing.T) {
	got := make(chan []byte, 1)
	shut := server(t, func(c *net.TCPConn) {
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		got <- all
	})
	b := newBox(t, setup{open: []string{"api.kit.test:8443"}, ports: []int{8443}, sites: map[string]string{"api.kit.test:8443": shut}})
	p := b.toName("api.kit.test", 8443)
	_ = p.SetDeadline(time.Now().Add(patience))
	if _, err := p.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want the end of what the host says", err)
	}
	_, _ = say(p, string(grab(t, helloFor("api.kit.test"))))
	if all := <-got; len(all) > 0 {
		t.Errorf("the host got %d bytes, want none", len(all))
	}
	b.wantDenied("api.kit.test", 8443, "too late")
}

// TestTLSThatBeginsWithAnotherRecord: servers skip a warning before the ClientHello, so it does not hide the ClientHello.
func TestTLSThatBeginsWithAnotherRecord(t *testing.T) {
	site, echo := newSite(t, true), server(t, func(c *net.TCPConn) { _, _ = io.CopyN(c, c, 2) })
	b := newBox(t, setup{
		open: []string{"api.kit.test:8443", "plain.kit.test:8443"}, ports: []int{8443},
		sites: map[string]string{"api.kit.test:8443": site.addr(), "plain.kit.test:8443": echo}, caps: egress.Caps{Head: time.Second},
	})
	for _, kind := range []byte{20, 21, 23, 24} {
		got, _ := say(b.toName("api.kit.test", 8443), string(append(record(kind, 1, 90), grab(t, helloFor("other.kit.test"))...)))
		if got != "\x15\x03\x01\x00\x02\x02\x31" && got != "" {
			t.Errorf("after a record of type %d: got %d bytes of the host, want none", kind, len(got))
		}
	}
	b.wantDenied("api.kit.test", 8443, "not TLS")
	b.wantAllowed()
	for text, want := range map[string]string{"\x15\x20": "\x15\x20", "\x15\x03": ""} {
		if got, _ := say(b.toName("plain.kit.test", 8443), text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	b.wantAllowed("plain.kit.test:8443")
}

package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAFileIsHadBesideIdleConnectionsAndSlowReaders: a client gets its file beside 1 000
// connections without a request and 100 that ask for a large file and do not read it.
func TestAFileIsHadBesideIdleConnectionsAndSlowReaders(t *testing.T) {
	const limit = 8 << 20
	f := newFake()
	f.put(made, map[string]string{"large.bin": strings.Repeat("x", limit), "small.txt": "here"})
	s := newSite(t, f, limit)
	dial := func() net.Conn {
		t.Helper()
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for range 100 {
		c := dial()
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4 << 10)
		}
		if _, err := io.WriteString(c, fmt.Sprintf("GET /files/%s/large.bin HTTP/1.1\r\nHost: %s\r\n\r\n", made, s.addr)); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		dial()
	}
	for name, want := range map[string]string{"small.txt": "here", "large.bin": strings.Repeat("x", limit)} {
		c := dial()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // the slow ones would hold it for minutes
		if _, err := fmt.Fprintf(c, "GET /files/%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n", made, name, s.addr); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s beside slow readers: got %v, want an answer", name, err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || string(body) != want {
			t.Errorf("%s: got status %d, %d bytes and %v, want 200 and %d bytes", name, res.StatusCode, len(body), err, len(want))
		}
	}
}

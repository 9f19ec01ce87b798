package listen

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestHeadsOfManyFields: a head that goes on after many lines is not read to its end. Parsed fields take fifty
// times the memory of their bytes, and nobody needs a key to send them.
func TestHeadsOfManyFields(t *testing.T) {
	inner := pairs{conns: make(chan net.Conn, 1)}
	l := newBounded(inner, 6)
	l.heads = true
	ours, theirs := net.Pipe()
	defer theirs.Close()
	inner.conns <- from{ours, "192.0.2.1:1"}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range 10 {
			if _, err := io.WriteString(theirs, strings.Repeat("a:\r\n", 50)); err != nil {
				return
			}
		}
	}()
	read := func() error {
		_, err := c.Read(make([]byte, 4<<10))
		return err
	}
	ConnState(c, http.StateNew)
	for range 2 { // 100 lines
		if err = read(); err != nil {
			t.Fatal(err)
		}
	}
	ConnState(c, http.StateActive) // the head has ended
	for range 3 {
		if err = read(); err != nil {
			t.Fatalf("a body: %v", err)
		}
	}
	ConnState(c, http.StateIdle)
	for range 3 { // 150 lines, of which the last may be those of a body
		if err = read(); err != nil {
			t.Fatalf("a second head: %v", err)
		}
	}
	if err = read(); !errors.Is(err, errFields) {
		t.Errorf("got %v, want the head refused", err)
	}
}

// TestBodiesOfManyLines: a body may come with its head, and be nothing but lines.
func TestBodiesOfManyLines(t *testing.T) {
	l, err := Open(t.Context(), Config{PortSet: true})
	if err != nil {
		t.Fatal(err)
	}
	stop := Serve(t.Context(), l, Served{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		_, _ = w.Write(got)
	})})
	defer stop()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for range 3 {
		body := strings.Repeat("\n", 20_000)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(got) != body {
			t.Errorf("got %d bytes and %v, want the body", len(got), err)
		}
	}
}

package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// TestUnansweredRequestsAreBounded: a client that sends requests and reads no answers does not fill the memory.
func TestUnansweredRequestsAreBounded(t *testing.T) {
	for name, row := range map[string]struct {
		method string
		id     func(n int) int
		most   int
	}{
		"calls":         {"ping", func(n int) int { return n }, maxOpen},
		"subscriptions": {"subscriptions/listen", func(n int) int { return n }, maxOpen},
		"one id":        {"ping", func(int) int { return 1 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			const extra = 100
			var in strings.Builder
			for n := range maxOpen + extra {
				fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"%s"}`+"\n", row.id(n), row.method)
			}
			var out bytes.Buffer
			root, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			taken := 0
			for range newConn(root, stop, strings.NewReader(in.String()), &out).incoming {
				taken++
			}
			if refused := bytes.Count(out.Bytes(), []byte("not answered yet")); taken != row.most || refused != maxOpen+extra-row.most {
				t.Errorf("got %d requests taken and %d refused, want %d taken and all others refused", taken, refused, row.most)
			}
		})
	}
}

// TestAnIDCanBeUsedAgain: once a request is answered, a client may give its id to another one.
func TestAnIDCanBeUsedAgain(t *testing.T) {
	in, client := io.Pipe()
	answers, out := io.Pipe()
	root, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	c := newConn(root, stop, in, out)
	go func() { // it answers each request
		for m := range c.incoming {
			if r, ok := m.(*jsonrpc.Request); ok {
				_ = c.Write(root, &jsonrpc.Response{ID: r.ID, Result: []byte("1")})
			}
		}
	}()
	buf := make([]byte, 1<<10)
	for range 1000 {
		if _, err := io.WriteString(client, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		n, err := answers.Read(buf)
		if err != nil || !bytes.Contains(buf[:n], []byte("result")) {
			t.Fatalf("got %s, %v, want a result", buf[:n], err)
		}
	}
}

package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestUnansweredRequestsAreBounded: a client that sends requests and reads no answers does not fill the memory.
func TestUnansweredRequestsAreBounded(t *testing.T) {
	const extra = 100
	var in strings.Builder
	for id := range maxOpen + extra {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", id)
	}
	var out bytes.Buffer
	root, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	c := newConn(root, stop, strings.NewReader(in.String()), &out)
	taken := 0
	for {
		if _, err := c.Read(t.Context()); err != nil {
			break
		}
		taken++
	}
	if refused := bytes.Count(out.Bytes(), []byte("not answered yet")); taken > maxOpen+1 || taken+refused != maxOpen+extra {
		t.Errorf("got %d requests taken and %d refused, want at most %d taken and all others refused", taken, refused, maxOpen+1)
	}
}

package door_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
)

// TestOneCallerOfAProxyDoesNotEndRequestsOfOthers: a caller that opens more connections than the server
// holds loses its own, also if all callers have one address.
func TestOneCallerOfAProxyDoesNotEndRequestsOfOthers(t *testing.T) {
	const flood = 600
	arrived, answer := make(chan string, flood+1), make(chan struct{})
	end := sync.OnceFunc(func() { close(answer) })
	d := door.New(door.Config{Own: "home", Rules: door.Rules{Keys: []door.Key{key("ka", "a"), key("kb", "b")}}}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("X-API-Key")
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	l, err := listen.Open(t.Context(), listen.Config{PortSet: true})
	if err != nil {
		t.Fatal(err)
	}
	defer listen.Serve(t.Context(), l, listen.Served{Handler: d})()
	defer end()
	ask := func(key string) net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Skipf("this machine cannot open so many connections: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nConnection: close\r\n\r\n", l.Addr(), key); err != nil {
			t.Fatal(err)
		}
		<-arrived
		return c
	}
	other := ask("kb")
	for range flood {
		ask("ka")
	}
	end()
	if got, err := io.ReadAll(other); err != nil || len(got) == 0 {
		t.Errorf("got %q, %v for the request of another caller, want its answer", got, err)
	}
}

package server

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/door"
)

// TestACutEndsAnAnswerThatIsSent: over a real connection, whose deadlines the door sets anew with each piece.
// The first cut is too early, and the client goes on receiving, slowly.
func TestACutEndsAnAnswerThatIsSent(t *testing.T) {
	for name, path := range map[string]string{"an answer": "/", "a stream": "/stream"} {
		t.Run(name, func(t *testing.T) {
			links, failed := make(chan *link, 1), make(chan error, 1)
			s := httptest.NewServer(door.New(door.Config{Own: "home", NoAuth: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				l := linkOf(r.Context().Done(), w)
				l.cut()
				links <- l
				text := []byte(strings.Repeat("x", 16<<20))
				for {
					_, err := w.Write(text)
					if err == nil && r.URL.Path == "/stream" {
						err = http.NewResponseController(w).Flush()
					}
					if err != nil {
						failed <- err
						return
					}
				}
			})))
			defer s.Close()
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err = c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: " + s.Listener.Addr().String() + "\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			l := <-links
			part, got := make([]byte, 16<<10), 0
			for n := range 5000 {
				select {
				case err = <-failed:
					if got == 0 {
						t.Errorf("got %v before the first part, want the answer to go on after a cut that was too early", err)
					}
					return
				default:
				}
				more, _ := c.Read(part) // fails after the answer was ended
				got += more
				time.Sleep(time.Millisecond)
				if n > 0 && n%20 == 0 {
					l.cut()
				}
			}
			t.Error("got an answer that goes on, want it ended by one of many cuts")
		})
	}
}

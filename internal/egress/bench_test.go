package egress_test

import (
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// BenchmarkRelay compares ways of carrying bytes from a host to a program, round
// by round in one run: a relay of io.Copy and nothing else, CONNECT, and HTTP. The
// figures are medians, the last two those of the ratios within a round.
func BenchmarkRelay(b *testing.B) {
	const size = 64 << 20
	block := make([]byte, 1<<20)
	source := server(b, func(c *net.TCPConn) {
		want := make([]byte, 1)
		if _, err := io.ReadFull(c, want); err != nil {
			return
		}
		if want[0] == 'G' { // a request
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
		}
		for range size / len(block) {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c) // a close with unread input would be a reset
	})
	l := listen(b)
	bare := relayBare(b, source)
	n := &backend.Network{Proxy: l}
	link := egress.New(egress.Config{Resolve: mapping(b, "a.kit.test="+source), Caps: egress.Caps{Bytes: 1 << 50}}).
		Attach(n, &rules{open: mustDomains(b, "a.kit.test", "a.kit.test:99")})
	defer link.Close()

	ways := []struct {
		name, to, ask string
		skip          int
	}{
		{"bare", bare, "x", 0},
		{"connect", l.Addr().String(), "CONNECT a.kit.test:99 HTTP/1.1\r\nHost: a.kit.test:99\r\n\r\n\x00", len("HTTP/1.1 200 OK\r\n\r\n")},
		{"http", l.Addr().String(), "GET http://a.kit.test/ HTTP/1.1\r\nHost: a.kit.test\r\n\r\n", len("HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\nConnection: close\r\n\r\n")},
	}
	took := make([][]float64, len(ways)) // seconds of each round
	sink := make([]byte, 1<<20)
	b.SetBytes(size * int64(len(ways)))
	round := 0
	for b.Loop() {
		for i := range ways {
			k := (i + round) % len(ways) // no way is always the first
			w := ways[k]
			start := time.Now()
			c := must(net.Dial("tcp", w.to))
			if _, err := io.WriteString(c, w.ask); err != nil {
				b.Fatal(err)
			}
			got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, sink)
			_ = c.Close()
			if err != nil || got != int64(size+w.skip) {
				b.Fatalf("%s: got %d bytes, %v, want %d", w.name, got, err, size+w.skip)
			}
			took[k] = append(took[k], time.Since(start).Seconds())
		}
		round++
	}
	for k, w := range ways {
		b.ReportMetric(size/1e6/median(took[k]), w.name+"-MB/s")
		if k > 0 {
			ratio := make([]float64, len(took[k]))
			for i := range ratio {
				ratio[i] = took[0][i] / took[k][i]
			}
			b.ReportMetric(median(ratio), w.name+"/bare")
		}
	}
}

func median(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}

// relayBare hands connections on to an address, by io.Copy and nothing else.
func relayBare(b *testing.B, to string) string {
	b.Helper()
	return server(b, func(c *net.TCPConn) {
		up := must(net.Dial("tcp", to))
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(up, c); _ = up.(*net.TCPConn).CloseWrite() })
		_, _ = io.Copy(c, up)
		_ = c.CloseWrite()
		wg.Wait()
		_ = up.Close()
	})
}

// BenchmarkRequest is one small request on the three ways in.
func BenchmarkRequest(b *testing.B) {
	w := newWorld(b)
	at := w.lookup("api.kit.test")
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			drop(b, w.to(at, 80), "/")
		}
	})
	b.Run("proxy", func(b *testing.B) {
		for b.Loop() {
			drop(b, w.proxy(), "http://api.kit.test/")
		}
	})
	b.Run("denied", func(b *testing.B) {
		for b.Loop() {
			drop(b, w.proxy(), "http://other.kit.test/")
		}
	})
}

func drop(b *testing.B, c net.Conn, target string) {
	b.Helper()
	host := "api.kit.test"
	if u, err := http.NewRequestWithContext(b.Context(), http.MethodGet, target, nil); err == nil && u.URL.Host != "" {
		host = u.URL.Host
	}
	_, _ = get(b, c, host, target)
	_ = c.Close()
}

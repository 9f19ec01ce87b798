package egress_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// TestStall: a side that says that it has ended and takes nothing does not hold a connection, and with it
// what the kernel keeps for it, for ever.
func TestStall(t *testing.T) {
	full := bytes.Repeat([]byte{0}, 1<<20)
	pour := func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(patience))
		for {
			if _, err := c.Write(full); err != nil {
				return
			}
		}
	}
	for _, who := range []string{"program", "host"} {
		t.Run(who, func(t *testing.T) {
			poured, release := make(chan bool), make(chan bool)
			to := server(t, func(c *net.TCPConn) {
				if who == "program" {
					pour(c)
					close(poured)
					return
				}
				_ = c.CloseWrite()
				<-release
			})
			b := newBox(t, setup{open: []string{"a.kit.test:99"}, ports: []int{99}, sites: map[string]string{"a.kit.test:99": to}, caps: egress.Caps{Idle: 500 * time.Millisecond}})
			t.Cleanup(func() { close(release) })
			c := b.toName("a.kit.test", 99)
			if _, err := c.Write([]byte{0}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if who == "program" {
				_ = c.(*net.TCPConn).CloseWrite()
			}
			if who == "host" {
				go func() { pour(c); close(poured) }()
			}
			<-poured
			if time.Since(start) >= patience {
				t.Error("it was still open when patience was over")
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); isDeadline(err) {
				t.Error("the program was not told")
			}
		})
	}
}

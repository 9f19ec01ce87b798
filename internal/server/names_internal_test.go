package server

import (
	"net"
	"net/url"
	"path"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sandboxmcp/sandboxmcp"
)

// FuzzCleanPath: a path that is accepted is below /mnt/data, and is as short as
// it can be.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/mnt/data/a", "/mnt/data/../x", "//mnt/data/a", "/mnt/data/./a//b/", "/mnt/data", "/mnt/data/..a", "/mnt/data/a\x00", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		got, err := cleanPath(p)
		if err != nil {
			if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidPath {
				t.Errorf("%q: %v", p, err)
			}
			return
		}
		rest, below := strings.CutPrefix(got, "/mnt/data/")
		if !below || rest == "" || path.Clean(got) != got || strings.Contains("/"+got+"/", "/../") || strings.ContainsRune(got, 0) {
			t.Errorf("%q is accepted as %q", p, got)
		}
	})
}

// FuzzCheckName: a name that is accepted is one part that names a file.
func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"a", "..", "a/b", ".", "a..b", "", "-rf", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if checkName(name) != nil {
			return
		}
		if p, err := cleanPath("/mnt/data/" + name); err != nil || path.Base(p) != name || len(name) > 255 {
			t.Errorf("%q is accepted, its path is %q, %v", name, p, err)
		}
	})
}

// FuzzLink: a link leads back to the file that it was made for, and a path that
// can be asked for has a link.
func FuzzLink(f *testing.F) {
	for _, s := range []string{"a", "a b%ü.txt", "sub/f", "..", "a//b", `a\b`, "a?b#c", "%2e%2e/x", "a\n", "\xff", "/mnt/data/x"} {
		f.Add(s)
	}
	links := NewLinks("team")
	links.Open("http://h")
	f.Fuzz(func(t *testing.T, name string) {
		if asked, err := unescapePath(name); err == nil && links.URL("team", "s", asked) == "" {
			t.Errorf("%q asks for %q, which has no link", name, asked)
		}
		link := links.URL("team", "s", name)
		if link == "" {
			return
		}
		u, err := url.Parse(link)
		if err != nil {
			t.Fatalf("link of %q: %v", name, err)
		}
		got, err := unescapePath(strings.TrimPrefix(u.EscapedPath(), "/files/s/"))
		if want := strings.TrimPrefix(name, "/mnt/data/"); err != nil || got != want {
			t.Errorf("%s asks for %q, %v; want %q", link, got, err, want)
		}
		if !links.signed("team", "s", got, u.Query().Get("sig")) {
			t.Errorf("%s is not signed", link)
		}
	})
}

// FuzzFileName: the parameter is one line of ASCII, and the name in it ends
// where it seems to.
func FuzzFileName(f *testing.F) {
	for _, s := range []string{"a.txt", `q".txt`, "a\r\nb", "ü", "\u202e", "%", "a;b", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := fileName(name)
		for _, c := range []byte(got) {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("%q has the byte %#x", got, c)
			}
		}
		if n := strings.Count(got, `"`); n != 2 {
			t.Errorf("%s has %d quotes", got, n)
		}
	})
}

// pairs is a listener without a network.
type pairs struct {
	net.Listener
	conns chan net.Conn
}

func (p pairs) Accept() (net.Conn, error) { return <-p.conns, nil }
func (p pairs) Close() error              { return nil }

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := pairs{conns: make(chan net.Conn, 2)}
		for range 2 {
			c, _ := net.Pipe()
			inner.conns <- c
		}
		l := &boundedListener{Listener: inner, free: make(chan struct{}, 1), closed: make(chan struct{})}
		first, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan net.Conn)
		go func() {
			c, _ := l.Accept()
			accepted <- c
		}()
		synctest.Wait()
		if got := len(inner.conns); got != 1 {
			t.Fatalf("%d connections wait while one is open, want 1", got)
		}
		_ = first.Close()
		_ = first.Close() // gives its room back once
		if c := <-accepted; c == nil {
			t.Error("the second connection was not accepted")
		}
		go func() {
			_, err := l.Accept()
			if err == nil {
				t.Error("a closed listener accepted")
			}
			close(accepted)
		}()
		synctest.Wait()
		_ = l.Close()
		<-accepted
	})
}

package server

import (
	"net/url"
	"path"
	"strings"
	"testing"

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
				t.Errorf("%q: got %v, want invalid_path", p, err)
			}
			return
		}
		rest, below := strings.CutPrefix(got, "/mnt/data/")
		if !below || rest == "" || path.Clean(got) != got || strings.Contains("/"+got+"/", "/../") || strings.ContainsRune(got, 0) {
			t.Errorf("%q: got %q, want a clean path below the directory", p, got)
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
			t.Errorf("%q: got the path %q and %v, want it refused", name, p, err)
		}
	})
}

// FuzzLink: a link leads back to the file that it was made for, and a path that
// can be asked for has a link.
func FuzzLink(f *testing.F) {
	for _, s := range []string{"a", "a b%ü.txt", "sub/f", "..", "a//b", `a\b`, "a?b#c", "%2e%2e/x", "a\n", "\xff", "/mnt/data/x"} {
		f.Add(s)
	}
	links := NewLinks("team", 0)
	links.Open("http://h")
	f.Fuzz(func(t *testing.T, name string) {
		if asked, err := unescapePath(name); err == nil && links.URL("team", "s", asked, 0) == "" {
			t.Errorf("%q: got a request for %q, want only what has a link", name, asked)
		}
		link := links.URL("team", "s", name, 0)
		if link == "" {
			return
		}
		u, err := url.Parse(link)
		if err != nil {
			t.Fatalf("link of %q: got %v, want an address", name, err)
		}
		got, err := unescapePath(strings.TrimPrefix(u.EscapedPath(), "/files/s/"))
		if want := strings.TrimPrefix(name, "/mnt/data/"); err != nil || got != want {
			t.Errorf("%s asks for %q, %v; want %q", link, got, err, want)
		}
		if !links.signed("team", "s", got, u.Query().Get("sig")) {
			t.Errorf("got the link %s, want a signature in it", link)
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
				t.Fatalf("got %q with the byte %#x, want printable ASCII", got, c)
			}
		}
		if n := strings.Count(got, `"`); n != 2 {
			t.Errorf("got %s with %d quotes, want 2", got, n)
		}
	})
}

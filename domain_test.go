package sandboxmcp_test

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestParseHost(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	long := label63 + "." + label63 + "." + label63 + "." + strings.Repeat("b", 61) // 253
	for in, want := range map[string]sandboxmcp.Host{
		"api.example.com": "api.example.com", "API.Example.COM": "api.example.com", "api.example.com.": "api.example.com",
		"localhost": "localhost", "xn--bcher-kva.example": "xn--bcher-kva.example", "1.2.3.4.example": "1.2.3.4.example", "a--b.example": "a--b.example",
		"9gag.com": "9gag.com", long: sandboxmcp.Host(long), long + ".": sandboxmcp.Host(long), label63 + ".x": sandboxmcp.Host(label63 + ".x"), "x": "x",
	} {
		got, err := sandboxmcp.ParseHost(in)
		if err != nil || got != want {
			t.Errorf("ParseHost(%q): got %q, %v, want %q", in, got, err, want)
		}
	}
	for in, why := range map[string]string{
		"": "empty", ".": "empty", "..": "nothing between", "a..b": "nothing between", ".a.b": "nothing between", "a.b..": "nothing between",
		"127.0.0.1": "address", "127.1": "address", "2130706433": "address", "0x7f000001": "address", "0x7f.1": "address", "0177.0.0.1": "address", "127.0.0.1.": "address", "a.b.1": "address", "0": "address",
		"::1": "only ASCII", "[::1]": "only ASCII", "a.b:80": "only ASCII", "a@b.c": "only ASCII", "a%2eb.c": "only ASCII", "a%00.b": "only ASCII", "a\x00.b": "only ASCII", "a b.c": "only ASCII", " a.b": "only ASCII", "a.b\n": "only ASCII",
		"ａｐｉ.example": "only ASCII", "api。example": "only ASCII", "bücher.example": "only ASCII", "a_b.example": "only ASCII", "*.a.b": "only ASCII", "a/b.c": "only ASCII", "\u212a.example": "only ASCII", "a\xff.b": "only ASCII", "fe80::1%eth0": "only ASCII",
		"-a.b": "hyphen", "a-.b": "hyphen", "a.-": "hyphen", label63 + "a.x": "63", long + "b": "253",
	} {
		got, err := sandboxmcp.ParseHost(in)
		var e *sandboxmcp.Error
		if !errors.As(err, &e) || e.Code != sandboxmcp.CodeInvalidArgument || e.Hint == "" || !strings.Contains(e.Message, why) {
			t.Errorf("ParseHost(%q): got %q, %v, want invalid_argument with a hint and %q", in, got, err, why)
		}
	}
}

func TestParseDomain(t *testing.T) {
	for in, want := range map[string]sandboxmcp.Domain{
		"api.example.com":         {Host: "api.example.com"},
		"Api.Example.Com.":        {Host: "api.example.com"},
		"*.example.com":           {Host: "example.com", Wild: true},
		"api.example.com:8443":    {Host: "api.example.com", Port: 8443},
		"api.example.com.:443":    {Host: "api.example.com", Port: 443},
		"*.Example.com:22":        {Host: "example.com", Wild: true, Port: 22},
		"a.b:65535":               {Host: "a.b", Port: 65535},
		"localhost.example":       {Host: "localhost.example"},
		"mylocalhost.example:80":  {Host: "mylocalhost.example", Port: 80},
		"*.xn--bcher-kva.example": {Host: "xn--bcher-kva.example", Wild: true},
	} {
		got, err := sandboxmcp.ParseDomain(in)
		if err != nil || got != want {
			t.Errorf("ParseDomain(%q): got %+v, %v, want %+v", in, got, err, want)
		}
	}
	for in, why := range map[string]string{
		"": "empty", "*": "every host", "*:443": "every host", "*.": "empty", "*.com": "every host below", "*.com.": "every host below", "*.*.com": "only ASCII", "a.*.com": "only ASCII", "*a.com": "only ASCII", "**.a.com": "only ASCII",
		"com": "no dot", "printer": "no dot", "printer:631": "no dot", "localhost": "sandbox itself", "LOCALHOST.": "sandbox itself", "a.localhost": "sandbox itself", "*.localhost": "sandbox itself", "*.a.localhost:80": "sandbox itself",
		"http://api.example.com/": "URL", "api.example.com/": "only ASCII", "user@api.example.com": "only ASCII", "127.0.0.1": "address", "127.0.0.1:80": "address", "*.0.0.1": "address", "::1": "port", "[::1]:80": "port", "169.254.169.254": "address", "fd00:ec2::254": "port",
		"a.b:": "port", "a.b:0": "port", "a.b:65536": "port", "a.b:080": "port", "a.b:+80": "port", "a.b:-1": "port", "a.b:80:80": "port", "a.b:http": "port", "a.b: 80": "port", "api.kit.test\nother": "only ASCII", strings.Repeat("x", 300): "253",
	} {
		got, err := sandboxmcp.ParseDomain(in)
		var e *sandboxmcp.Error
		if !errors.As(err, &e) || e.Code != sandboxmcp.CodeInvalidArgument || e.Hint == "" || !strings.Contains(e.Message, why) {
			t.Errorf("ParseDomain(%q): got %+v, %v, want invalid_argument with a hint and %q", in, got, err, why)
		}
	}
}

func TestDomainMatch(t *testing.T) {
	for _, c := range []struct {
		domain string
		host   sandboxmcp.Host
		port   int
		want   bool
	}{
		{"example.com", "example.com", 80, true},
		{"example.com", "example.com", 443, true},
		{"example.com", "example.com", 22, false},
		{"example.com", "example.com", 0, false},
		{"example.com:443", "example.com", 80, false},
		{"example.com:22", "example.com", 22, true},
		{"example.com:22", "example.com", 443, false},
		{"example.com", "a.example.com", 443, false},
		{"example.com", "aexample.com", 443, false},
		{"example.com", "example.com.evil.test", 443, false},
		{"example.com", "com", 443, false},
		{"example.com", "EXAMPLE.com", 443, false}, // not canonical: no Host
		{"*.example.com", "a.example.com", 443, true},
		{"*.example.com", "a.b.example.com", 80, true},
		{"*.example.com", "example.com", 443, false},
		{"*.example.com", "aexample.com", 443, false},
		{"*.example.com", ".example.com", 443, false},
		{"*.example.com", "a.example.com", 8443, false},
		{"*.example.com:8443", "a.example.com", 8443, true},
	} {
		d, err := sandboxmcp.ParseDomain(c.domain)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Match(c.host, c.port); got != c.want {
			t.Errorf("%s matches %s:%d: got %v, want %v", c.domain, c.host, c.port, got, c.want)
		}
	}
	for _, d := range []sandboxmcp.Domain{{}, {Wild: true}} {
		if d.Match("", 80) || d.Match("a.b", 80) || d.Match("a.", 80) || d.Covers(d) {
			t.Errorf("%+v matches something", d)
		}
	}
}

func TestDomainCovers(t *testing.T) {
	all := []string{
		"a.example", "b.example", "x.a.example", "y.x.a.example", "xa.example", "a.example:80", "a.example:443", "a.example:22", "x.a.example:22",
		"*.a.example", "*.x.a.example", "*.a.example:443", "*.a.example:22", "*.b.example",
	}
	hosts := []sandboxmcp.Host{"a.example", "b.example", "x.a.example", "y.x.a.example", "z.y.x.a.example", "xa.example", "q.a.example", "q.b.example", "q.xa.example"}
	for _, a := range all {
		for _, b := range all {
			da, err1 := sandboxmcp.ParseDomain(a)
			db, err2 := sandboxmcp.ParseDomain(b)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			want := true // the reference: whatever b matches, a matches
			for _, h := range hosts {
				for _, p := range []int{22, 80, 443, 8443} {
					want = want && (!db.Match(h, p) || da.Match(h, p))
				}
			}
			if got := da.Covers(db); got != want {
				t.Errorf("%s covers %s: got %v, want %v", a, b, got, want)
			}
		}
	}
}

// address reports whether any resolver could read s as an address: by
// net/netip, or by the rules of inet_aton: one to four numbers between dots,
// each decimal, octal or hexadecimal.
func address(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return false
	}
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 0, 64); err != nil && !errors.Is(err, strconv.ErrRange) && !octal(p) {
			return false
		}
	}
	return true
}

// octal is what some readers take for a number though it has digits that no
// octal number has.
func octal(p string) bool { return p != "" && strings.Trim(p, "0123456789") == "" }

func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"api.example.com", "API.example.com.", "127.0.0.1", "0x7f.1", "017700000001", "a_b", "[::1]", "a.b:80", "ａ.b", "localhost", "1.2.3.0x4", "a.0xf"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := sandboxmcp.ParseHost(s)
		if err != nil {
			if h != "" {
				t.Errorf("%q is refused and gives %q", s, h)
			}
			return
		}
		if again, err := sandboxmcp.ParseHost(string(h)); err != nil || again != h {
			t.Errorf("%q gives %q, and that gives %q, %v", s, h, again, err)
		}
		if !strings.EqualFold(strings.TrimSuffix(s, "."), string(h)) {
			t.Errorf("%q gives %q, another name", s, h)
		}
		if address(string(h)) {
			t.Errorf("%q is an address", h)
		}
		if strings.ToLower(string(h)) != string(h) || strings.Trim(string(h), "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || len(h) > 253 {
			t.Errorf("%q is not canonical", h)
		}
	})
}

func FuzzDomain(f *testing.F) {
	f.Add("*.example.com", "a.example.com", 443)
	f.Add("example.com:22", "example.com", 22)
	f.Add("*.example.com:8443", "aexample.com", 8443)
	f.Add("example.com", "example.com.evil.test", 80)
	f.Add("*", "a.b", 80)
	f.Add("*.com", "a.com", 443)
	f.Fuzz(func(t *testing.T, pattern, host string, port int) {
		d, err := sandboxmcp.ParseDomain(pattern)
		if err != nil {
			if d != (sandboxmcp.Domain{}) {
				t.Errorf("%q is refused and gives %+v", pattern, d)
			}
			return
		}
		again, err := sandboxmcp.ParseDomain(d.String())
		if err != nil || again != d {
			t.Errorf("%q gives %+v, which prints %q, which gives %+v, %v", pattern, d, d.String(), again, err)
		}
		if !d.Covers(d) {
			t.Errorf("%s does not cover itself", d)
		}
		h, err := sandboxmcp.ParseHost(host)
		if err != nil {
			return
		}
		// The slow reference: the labels of the pattern are the last labels of the host.
		hl, pl := strings.Split(string(h), "."), strings.Split(string(d.Host), ".")
		want := len(hl) == len(pl)
		if d.Wild {
			want = len(hl) > len(pl)
		}
		for i := 1; want && i <= len(pl); i++ {
			want = hl[len(hl)-i] == pl[len(pl)-i]
		}
		want = want && (port == d.Port && port > 0 || d.Port == 0 && (port == 80 || port == 443))
		if got := d.Match(h, port); got != want {
			t.Errorf("%s matches %s:%d: got %v, want %v", d, h, port, got, want)
		}
		if one, err := sandboxmcp.ParseDomain(string(h)); err == nil && want && d.Port == 0 {
			one.Port = port
			if !d.Covers(one) {
				t.Errorf("%s matches %s:%d and does not cover it", d, h, port)
			}
		}
	})
}

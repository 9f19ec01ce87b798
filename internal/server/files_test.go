package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// site is an artifact server on a port of this machine.
type site struct {
	t     *testing.T
	f     *fake
	links *server.Links
	url   string // http://127.0.0.1:port
	addr  string
}

func newSite(t *testing.T, f *fake, limit int64) *site {
	t.Helper()
	l, err := listen.Open(t.Context(), listen.Config{PortSet: true})
	if err != nil {
		t.Fatal(err)
	}
	links := server.NewLinks("team", limit)
	links.Open(l.URL)
	stop := server.ServeFiles(t.Context(), l, server.Files(server.FilesConfig{Engine: f, Links: links, Names: []string{"files.example"}}), slog.New(slog.DiscardHandler))
	t.Cleanup(stop)
	return &site{t, f, links, l.URL, l.Addr().String()}
}

// reply is a response that was read to its end.
type reply struct {
	status int
	header http.Header
	length int64
	body   string
}

// ask sends a request whose target and headers go out as they are.
func (s *site) ask(method, target string, headers ...string) reply {
	s.t.Helper()
	var d net.Dialer
	c, err := d.DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	host := "Host: " + s.addr + "\r\n"
	for _, h := range headers {
		if strings.HasPrefix(h, "Host:") {
			host = ""
		}
	}
	target = strings.TrimPrefix(target, s.url)
	if _, err := io.WriteString(c, method+" "+target+" HTTP/1.1\r\n"+host+strings.Join(append(headers, "Connection: close"), "\r\n")+"\r\n\r\n"); err != nil {
		s.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		s.t.Fatalf("%s %s: got %v, want an answer", method, target, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("%s %s: got %v, want the body", method, target, err)
	}
	return reply{res.StatusCode, res.Header, res.ContentLength, string(body)}
}

func (s *site) status(want int, method, target string, headers ...string) string {
	s.t.Helper()
	res := s.ask(method, target, headers...)
	if res.status != want {
		s.t.Errorf("%s %.200s %q: got %d, want %d: %.200s", method, target, headers, res.status, want, res.body)
	}
	return res.body
}

func TestFilesBytes(t *testing.T) {
	f := newFake()
	f.put(made, map[string]string{"a.txt": "hällo", "p.png": "\x89PNG", "a b%ü.txt": "odd", "sub/f.txt": "deep", "big": "123456789", "fits": "12345678"})
	s := newSite(t, f, 8)
	for name, want := range map[string]string{"a.txt": "hällo", "p.png": "\x89PNG", "a b%ü.txt": "odd", "sub/f.txt": "deep", "fits": "12345678"} {
		link := s.links.URL("team", string(made), name, 0)
		if got := s.status(200, "GET", link); got != want {
			t.Errorf("%s = %q, want %q", link, got, want)
		}
		res := s.ask("HEAD", link)
		if body := res.body; res.status != 200 || body != "" || res.length != int64(len(want)) {
			t.Errorf("HEAD %s: got %d %q, length %d, want 200, no body, length %d", link, res.status, body, res.length, len(want))
		}
	}
	if link, want := s.links.URL("team", string(made), "/mnt/data/a b%ü.txt", 0), s.url+"/files/"+string(made)+"/a%20b%25%C3%BC.txt?sig="; !strings.HasPrefix(link, want) {
		t.Errorf("got link %s, want %s…", link, want)
	}
	base := s.url + "/files/"
	s.status(200, "GET", base+string(made)+"/a.txt")
	s.status(404, "GET", base+string(made)+"/none.txt")
	s.status(404, "GET", base+"sess_none/a.txt")
	s.status(404, "GET", base+"sess_000000000000000000000000/a.txt")
	if body := s.status(413, "GET", base+string(made)+"/big"); !strings.Contains(body, `"artifact_too_large"`) || !strings.Contains(body, `"size_bytes":9`) {
		t.Errorf("body of 413: got %s, want the code and the size", body)
	}
	s.status(404, "GET", "/")
	s.status(404, "GET", "/files")
	if got := s.status(200, "GET", "/healthz"); got != `{"status":"ok"}`+"\n" {
		t.Errorf("healthz: got %s, want ok", got)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"} {
		for _, target := range []string{base + string(made) + "/a.txt", base + "sess_none/a.txt", "/healthz"} {
			res := s.ask(method, target)
			if got := res.header.Get("Allow"); res.status != 405 || got != "GET, HEAD" {
				t.Errorf("%s %s: got %d, Allow %q, want 405 and GET, HEAD", method, target, res.status, got)
			}
		}
	}
}

func TestFilesHeaders(t *testing.T) {
	f := newFake()
	f.put(made, map[string]string{"a.txt": "text", "none": "x"})
	s := newSite(t, f, 0)
	for target, sum := range map[string]string{"/files/" + string(made) + "/a.txt": `"982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"`, "/files/" + string(made) + "/no": "", "/": "", "/files/x y": ""} {
		if strings.Contains(target, " ") {
			continue // no request at all
		}
		h := s.ask("GET", target).header
		for name, want := range map[string]string{
			"X-Content-Type-Options":       "nosniff",
			"Content-Security-Policy":      "sandbox; default-src 'none'; frame-ancestors 'none'",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Referrer-Policy":              "no-referrer",
			"Cache-Control":                "private, no-store",
			"Access-Control-Allow-Origin":  "",
			"ETag":                         sum,
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s of %s = %q, want %q", name, target, got, want)
			}
		}
	}
	target := "/files/" + string(made) + "/a.txt"
	etag := s.ask("GET", target).header.Get("ETag")
	s.status(304, "GET", target, "If-None-Match: "+etag)
	s.status(304, "HEAD", target, "If-None-Match: *")
	s.status(200, "GET", target, `If-None-Match: "other"`)
	res := s.ask("GET", target, "Range: bytes=1-2")
	if got := res.body; res.status != 206 || got != "ex" || res.header.Get("Content-Range") != "bytes 1-2/4" {
		t.Errorf("range: got %d %q %s, want 206, ex and bytes 1-2/4", res.status, got, res.header.Get("Content-Range"))
	}
	res = s.ask("GET", target, "Range: bytes=0-0,3-3")
	if got := res.body; res.status != 206 || !strings.HasPrefix(res.header.Get("Content-Type"), "multipart/byteranges") || !strings.Contains(got, "bytes 3-3/4") {
		t.Errorf("two ranges: got %d %q, want 206 in parts", res.status, got)
	}
	for status, header := range map[int]string{416: "Range: bytes=9-", 412: `If-Match: "other"`} {
		s.status(status, "HEAD", target, header)
		res = s.ask("GET", target, header)
		var body map[string]any
		if err := json.Unmarshal([]byte(res.body), &body); err != nil || res.status != status || body["error"] != "invalid_argument" || body["message"] == "" || body["hint"] == "" {
			t.Errorf("%s: got %d %q, want %d and the body of a failure", header, res.status, res.body, status)
		}
		if got := res.header.Get("Content-Type"); got != "application/json" || res.header.Get("Content-Disposition") != "" {
			t.Errorf("%s: got content type %q and headers %v, want application/json and no disposition", header, got, res.header)
		}
	}
	if got := s.ask("GET", target, "Range: bytes=9-").header.Get("Content-Range"); got != "bytes */4" {
		t.Errorf("got Content-Range %q for 416, want bytes */4", got)
	}
	s.status(200, "GET", target, "Range: bytes=1-2", `If-Range: "other"`)
}

func TestFilesPresented(t *testing.T) {
	f := newFake()
	for name, c := range map[string]struct{ mime, kind, disposition string }{
		"a.txt":        {"text/plain; charset=utf-8", "text/plain; charset=utf-8", `inline; filename="a.txt"`},
		"LOG":          {"text/plain", "text/plain; charset=utf-8", `inline; filename="LOG"`},
		"p.png":        {"image/png", "image/png", `inline; filename="p.png"`},
		"p.JPG":        {"image/jpeg", "image/jpeg", `inline; filename="p.JPG"`},
		"d.csv":        {"text/csv; charset=utf-8", "text/csv; charset=utf-8", `inline; filename="d.csv"`},
		"j.json":       {"application/json", "application/json", `inline; filename="j.json"`},
		"x.html":       {"text/html", "text/html; charset=utf-8", `attachment; filename="x.html"`},
		"y.html":       {"text/plain", "text/plain; charset=utf-8", `attachment; filename="y.html"`},
		"lies.txt":     {"text/html", "text/html; charset=utf-8", `attachment; filename="lies.txt"`},
		"x.svg":        {"image/svg+xml", "image/svg+xml", `attachment; filename="x.svg"`},
		"x.xml":        {"text/xml", "text/xml; charset=utf-8", `attachment; filename="x.xml"`},
		"x.js":         {"text/javascript", "text/javascript; charset=utf-8", `attachment; filename="x.js"`},
		"x.pdf":        {"application/pdf", "application/pdf", `attachment; filename="x.pdf"`},
		"p.png.html":   {"image/png", "image/png", `attachment; filename="p.png.html"`},
		"bin":          {"", "application/octet-stream", `attachment; filename="bin"`},
		"crlf":         {"text/plain\r\nX-Evil: 1", "application/octet-stream", `attachment; filename="crlf"`},
		"ü b.txt":      {"text/plain", "text/plain; charset=utf-8", `inline; filename="_ b.txt"; filename*=UTF-8''%C3%BC%20b.txt`},
		`q".txt`:       {"text/plain", "text/plain; charset=utf-8", `inline; filename="q_.txt"; filename*=UTF-8''q%22.txt`},
		"n\r\nX: y":    {"text/plain", "text/plain; charset=utf-8", `inline; filename="n__X: y"`},
		"a\u202etxt.x": {"text/plain", "text/plain; charset=utf-8", `attachment; filename="a_txt.x"`},
		"%41;.txt":     {"text/plain", "text/plain; charset=utf-8", `inline; filename="_41;.txt"; filename*=UTF-8''%2541%3B.txt`},
	} {
		t.Run(name, func(t *testing.T) {
			f.types[name] = c.mime
			if c.mime == "" {
				f.types[name] = "nonsense"
			}
			f.put(made, map[string]string{name: "ok"})
			s := newSite(t, f, 0)
			res := s.ask("GET", s.links.URL("team", string(made), name, 0))
			if d := cmp.Diff([]string{c.kind, c.disposition, "", "nosniff"}, []string{res.header.Get("Content-Type"), res.header.Get("Content-Disposition"), res.header.Get("X-Evil"), res.header.Get("X-Content-Type-Options")}); d != "" || res.status != 200 {
				t.Errorf("%d (-want +got):\n%s", res.status, d)
			}
		})
	}
	f.types["latin.txt"] = "text/plain"
	f.put(made, map[string]string{"latin.txt": "\xe4"})
	if got := newSite(t, f, 0).ask("GET", "/files/"+string(made)+"/latin.txt").header.Get("Content-Type"); got != "text/plain" {
		t.Errorf("got Content-Type %q for what is no UTF-8, want text/plain", got)
	}
}

// hostilePaths are targets behind /files/ that name no file.
var hostilePaths = []string{
	"", "/", "//", "sess_x", string(made), string(made) + "/", string(made) + "//a.txt", string(made) + "/.", string(made) + "/..", string(made) + "/./a.txt", string(made) + "/../a.txt",
	string(made) + "/..%2f..%2f..%2fetc%2fpasswd", string(made) + "/%2e%2e/%2e%2e/etc/passwd", string(made) + "/%2e", string(made) + "/sub%2ff", string(made) + "/sub%2Ff", string(made) + "/sub%5cf",
	string(made) + `/sub\f`, string(made) + "/a.txt%00", string(made) + "/%00", string(made) + "/a.txt/", string(made) + "/sub//f", string(made) + "/%ff.txt", string(made) + "/sub/%2e%2e/a.txt",
	string(made) + "/" + strings.Repeat("a/", 2100) + "a", "%2e%2e/a.txt", "../files/" + string(made) + "/a.txt", "a%2fb/a.txt", "a.b/a.txt", string(made) + "%00/a.txt", string(made) + "%0a/a.txt",
	string(made) + "/%252e%252e/a.txt", string(made) + "/..;/a.txt", string(made) + "/%c0%ae%c0%ae/a.txt", string(made) + "/.%2e/a.txt",
}

func TestFilesHostilePaths(t *testing.T) {
	f := newFake()
	f.put(made, map[string]string{"a.txt": "secret", "sub/f": "secret", "": "secret", ".": "secret", "..": "secret", `sub\f`: "secret", "a.txt/": "secret", "sub//f": "secret", "a.txt\x00": "secret", "\xff.txt": "secret", "/a.txt": "secret"})
	s := newSite(t, f, 0)
	for _, path := range hostilePaths {
		res := s.ask("GET", "/files/"+path)
		if body := res.body; res.status < 400 || res.status >= 500 || strings.Contains(body, "secret") {
			t.Errorf("GET /files/%.80s: got %d %.80s, want 400 to 499 without the secret", path, res.status, body)
		}
	}
	for _, target := range []string{"//files/" + string(made) + "/a.txt", "/./files/" + string(made) + "/a.txt", "/x/../files/" + string(made) + "/a.txt", "/FILES/" + string(made) + "/a.txt", "/files%2f" + string(made) + "/a.txt", "/%66iles/" + string(made) + "/a.txt"} {
		if res := s.ask("GET", target); res.status < 400 {
			t.Errorf("GET %s: got %d, want 400 or more", target, res.status)
		}
	}
	for _, r := range f.reads {
		if name := strings.TrimPrefix(r, "team "+string(made)+" /mnt/data/"); name != "%2e%2e/a.txt" && name != "..;/a.txt" {
			t.Errorf("got a read of %q, want only names as they stand", r)
		}
	}
	for _, name := range []string{"", ".", "..", "a/../b", "a//b", "/a", "a/", `a\b`, "a\x00", "\xff", "/mnt/data", "/mnt/data/", "/mnt/data//x", "/etc/passwd"} {
		if link := s.links.URL("team", string(made), name, 0); link != "" {
			t.Errorf("%q: got the link %s, want none", name, link)
		}
	}
}

func TestFilesSignatures(t *testing.T) {
	f := newFake()
	f.put("mine", map[string]string{"a.txt": "signed", "b.txt": "other"})
	f.put(made, map[string]string{"a.txt": "made"})
	s := newSite(t, f, 0)
	link := s.links.URL("team", "mine", "a.txt", 0)
	if got := s.status(200, "GET", link); got != "signed" {
		t.Errorf("%s: got %q, want signed", link, got)
	}
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	sig := u.Query().Get("sig")
	flipped := "A"
	if sig[0] == 'A' {
		flipped = "B"
	}
	foreign := server.NewLinks("team", 0)
	foreign.Open(s.url)
	for name, target := range map[string]string{
		"another file":       "/files/mine/b.txt?sig=" + sig,
		"another session":    "/files/" + string(made) + "/a.txt?sig=" + sig,
		"another namespace":  "/files/mine/a.txt?sig=" + sig + "&ns=other",
		"one bit":            "/files/mine/a.txt?sig=" + flipped + sig[1:],
		"cut":                "/files/mine/a.txt?sig=" + sig[:20],
		"longer":             "/files/mine/a.txt?sig=" + sig + "AAAA",
		"empty":              "/files/" + string(made) + "/a.txt?sig=",
		"twice":              "/files/mine/a.txt?sig=" + sig + "&sig=" + sig,
		"a wrong one first":  "/files/mine/a.txt?sig=x&sig=" + sig,
		"another server":     foreign.URL("team", "mine", "a.txt", 0),
		"wrong is not none":  "/files/" + string(made) + "/a.txt?sig=x",
		"with a line end":    "/files/mine/a.txt?sig=" + sig + "%0a",
		"sum over other cut": "/files/mine%00a.txt?sig=" + sig,
	} {
		res := s.ask("GET", target)
		if body := res.body; res.status != 403 && res.status != 400 {
			t.Errorf("%s: GET %s: got %d %s, want 400 or 403", name, target, res.status, body)
		}
	}
	if got := len(f.reads); got != 1 {
		t.Errorf("the engine was asked %d times, want once: %q", got, f.reads)
	}
	s.status(404, "GET", "/files/mine/a.txt")
	s.status(404, "GET", "/files/"+string(made)+"/a.txt?ns=other")
	s.status(400, "GET", "/files/"+string(made)+"/a.txt?ns=..%2f")
	s.status(400, "GET", "/files/"+string(made)+"/a.txt?a=%zz")
	if got := s.status(200, "GET", "/files/"+string(made)+"/a.txt?ns=team"); got != "made" {
		t.Errorf("own namespace by name: got %q, want made", got)
	}
	other := s.links.URL("other", "mine", "a.txt", 0)
	s.status(200, "GET", other)
	if got, want := f.reads[len(f.reads)-1], "other mine /mnt/data/a.txt"; got != want {
		t.Errorf("asked for %q, want %q", got, want)
	}
	if most := server.MaxLinked; s.links.URL("team", "mine", "a.txt", most) == "" || s.links.URL("team", "mine", "a.txt", most+1) != "" {
		t.Error("want a link for a file within the bound, and none above it, which would be refused")
	}
	if s.links.Open(""); s.links.URL("team", "mine", "a.txt", 0) != "" {
		t.Error("got links, want none while no server hands files out")
	}
}

func TestFilesOfRuns(t *testing.T) {
	f := newFake()
	f.files["sub/a.txt"] = []byte("kept")
	f.files["big"] = []byte("123456789")
	s := newSite(t, f, 8)
	if got := s.status(200, "GET", s.links.URL("team", runID, "sub/a.txt", 0)); got != "kept" {
		t.Errorf("file of a run: got %q, want kept", got)
	}
	s.status(404, "GET", s.links.URL("team", runID, "none", 0))
	s.status(413, "GET", s.links.URL("team", runID, "big", 0))
	s.status(404, "GET", "/files/"+runID+"/sub/a.txt")
	if body := s.status(404, "GET", s.links.URL("team", "none", "a.txt", 0)); !strings.Contains(body, "session_not_found") {
		t.Errorf("neither session nor run: got %s, want session_not_found", body)
	}
}

func TestFilesHosts(t *testing.T) {
	f := newFake()
	f.put(made, map[string]string{"a.txt": "x"})
	s := newSite(t, f, 0)
	_, port, _ := net.SplitHostPort(s.addr)
	link := s.links.URL("team", string(made), "a.txt", 0)
	for _, host := range []string{"127.0.0.1:" + port, "localhost:" + port, "LOCALHOST", "127.0.0.1", "[::1]:" + port, "[::1]", "127.0.0.2:9", "files.example", "Files.Example:443"} {
		s.status(200, "GET", link, "Host: "+host)
		s.status(200, "GET", "/healthz", "Host: "+host)
	}
	for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1.evil.example", "localhost.evil.example", "evil.files.example", "10.0.0.1", "0.0.0.0:" + port, "[::]", "", "localhost.", "127.1", "2130706433", "[::ffff:10.0.0.1]", "169.254.169.254"} {
		for _, target := range []string{link, "/files/a/b", "/healthz", "/"} {
			s.status(403, "GET", target, "Host: "+host)
		}
	}
	s.status(403, "GET", "http://evil.example/files/"+string(made)+"/a.txt")
	s.status(400, "GET", link, "Host: localhost", "Host: evil.example")
	for _, origin := range []string{"https://evil.example", "null", "http://127.0.0.1:1", "https://" + s.addr, "http://" + s.addr + ".evil.example", "", "http://localhost:" + port} {
		s.status(403, "GET", link, "Origin: "+origin)
	}
	s.status(200, "GET", link, "Origin: http://"+s.addr)
	s.status(403, "GET", link, "Origin: http://"+s.addr, "Origin: https://evil.example")
	for _, h := range []string{"X-Forwarded-For: 1.2.3.4", "Forwarded: for=1.2.3.4", "Via: 1.1 proxy", "X-Real-IP: 1.2.3.4", "X-Forwarded-Host: x"} {
		s.status(403, "GET", "/files/"+string(made)+"/a.txt", h)
		s.status(200, "GET", link, h)
	}
}

// TestFilesFromElsewhere asks as another machine would.
func TestFilesFromElsewhere(t *testing.T) {
	f := newFake()
	f.put(made, map[string]string{"a.txt": "x"})
	links := server.NewLinks("team", 0)
	links.Open("http://192.0.2.1:80")
	h := server.Files(server.FilesConfig{Engine: f, Links: links})
	ask := func(target, from, at string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if at != "" {
			addr, err := net.ResolveTCPAddr("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
		}
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	unsigned, signed := "http://192.0.2.1/files/"+string(made)+"/a.txt", links.URL("team", string(made), "a.txt", 0)
	for _, c := range []struct {
		target, from, at string
		want             int
	}{
		{unsigned, "192.0.2.9:1234", "192.0.2.1:80", 403},
		{signed, "192.0.2.9:1234", "192.0.2.1:80", 200},
		{unsigned, "127.0.0.1:1234", "192.0.2.1:80", 403},
		{unsigned, "", "192.0.2.1:80", 403},
		{signed, "127.0.0.1:1234", "", 403},
		{strings.Replace(unsigned, "192.0.2.1", "127.0.0.1", 1), "192.0.2.9:1234", "192.0.2.1:80", 403},
		{strings.Replace(signed, "192.0.2.1:80", "127.0.0.1:80", 1), "192.0.2.9:1234", "192.0.2.1:80", 403},
		{strings.Replace(signed, "192.0.2.1:80", "localhost", 1), "192.0.2.9:1234", "192.0.2.1:80", 403},
		{strings.Replace(unsigned, "192.0.2.1", "localhost", 1), "192.0.2.9:1234", "192.0.2.1:80", 403},
		{strings.Replace(unsigned, "192.0.2.1", "127.0.0.1", 1), "[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:80", 200},
		{strings.Replace(unsigned, "192.0.2.1", "[::1]", 1), "[::1]:1", "[::1]:80", 200},
		{strings.Replace(unsigned, "192.0.2.1", "[fe80::1]", 1), "[fe80::2%lo]:1", "[fe80::1%lo]:80", 403},
	} {
		if got := ask(c.target, c.from, c.at); got != c.want {
			t.Errorf("%s from %q at %q = %d, want %d", c.target, c.from, c.at, got, c.want)
		}
	}
}

func TestFilesFaults(t *testing.T) {
	f := newFake()
	f.put(made, map[string]string{"a.txt": "x"})
	s := newSite(t, f, 0)
	body := s.status(500, "GET", "/files/"+string(made)+"/panic")
	if !strings.Contains(body, `"internal"`) || strings.Contains(body, "planted") {
		t.Errorf("body of a fault: got %s, want internal without the cause", body)
	}
	s.status(200, "GET", "/files/"+string(made)+"/a.txt")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.links.URL("team", string(made), "a.txt", 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Long", strings.Repeat("x", 64<<10))
	var tr http.Transport
	defer tr.CloseIdleConnections()
	if res, err := tr.RoundTrip(r); err == nil { // an error: it was cut off before it had read the answer
		if _ = res.Body.Close(); res.StatusCode != 431 {
			t.Errorf("64 KiB of headers: got %d, want 431", res.StatusCode)
		}
	}
	s.status(200, "GET", "/files/"+string(made)+"/a.txt")
}

func TestListen(t *testing.T) {
	first, err := listen.Open(t.Context(), listen.Config{Host: "127.0.0.1", PortSet: true})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, text, _ := net.SplitHostPort(first.Addr().String())
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	if first.URL != "http://127.0.0.1:"+text || first.Note != "" {
		t.Errorf("got URL %s and note %q, want the port asked for and no note", first.URL, first.Note)
	}
	_, err = listen.Open(t.Context(), listen.Config{Port: port, PortSet: true})
	var e *sandboxmcp.Error
	if !errors.As(err, &e) || e.Code != sandboxmcp.CodeBackendUnavailable || strings.Count(e.Message, text) != 1 {
		t.Errorf("a set port that is taken: got %v, want backend_unavailable with the port once", err)
	}
	next, err := listen.Open(t.Context(), listen.Config{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if next.Addr().String() == first.Addr().String() || !strings.Contains(next.Note, text) || !strings.HasSuffix(next.URL, next.Addr().String()) {
		t.Errorf("a default port that is taken: got %s, note %q and URL %s, want another port and a note of it", next.Addr(), next.Note, next.URL)
	}
	wide, err := listen.Open(t.Context(), listen.Config{Host: "0.0.0.0", PortSet: true})
	if err != nil {
		t.Fatal(err)
	}
	defer wide.Close()
	if at, err := url.Parse(wide.URL); err != nil || strings.Contains(wide.URL, "//0.0.0.0") || !strings.Contains(wide.Note, "other machines") || !strings.Contains(wide.Note, at.Hostname()) {
		t.Errorf("all addresses: got URL %s, note %q and %v, want an address of the machine and a note of it", wide.URL, wide.Note, err)
	}
	links := server.NewLinks("team", 0)
	defer server.ServeFiles(t.Context(), wide, server.Files(server.FilesConfig{Engine: newFake(), Links: links, Names: []string{"0.0.0.0"}}), nil)()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, wide.URL+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := (&http.Transport{}).RoundTrip(req); err != nil || res.StatusCode != http.StatusOK { // the machine's own address stays on it
		t.Errorf("a link of a listener on all addresses: got %v and %v, want status 200", res, err)
	} else {
		_ = res.Body.Close()
	}
	named, err := listen.Open(t.Context(), listen.Config{Host: "localhost", PortSet: true})
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	if !strings.HasPrefix(named.URL, "http://localhost:") {
		t.Errorf("by name: got URL %s, want localhost", named.URL)
	}
	if _, err := listen.Open(t.Context(), listen.Config{Host: "no such host", Port: 1}); err == nil {
		t.Error("got a listener on a host that is none, want an error")
	}
}

func TestServeFilesEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for _, end := range []string{"stop", "context"} {
		l, err := listen.Open(t.Context(), listen.Config{PortSet: true})
		if err != nil {
			t.Fatal(err)
		}
		stop := server.ServeFiles(ctx, l, server.Files(server.FilesConfig{Engine: newFake(), Links: server.NewLinks("", 0)}), nil)
		s := &site{t: t, url: l.URL, addr: l.Addr().String()}
		s.status(200, "GET", "/healthz")
		if end == "context" {
			cancel()
		}
		stop()
		stop()
		var d net.Dialer
		if c, err := d.DialContext(t.Context(), "tcp", s.addr); err == nil {
			_ = c.Close()
			t.Errorf("got an open port after %s, want it closed", end)
		}
	}
	cancel()
}

// TestLargeFiles: a file above what is sent from memory comes from a copy, whole, in part and to
// HEAD; every copy is closed. One above the bound on links has none, and is 413.
func TestLargeFiles(t *testing.T) {
	f := newFake()
	text := strings.Repeat("0123456789abcdef", 40<<16) // 40 MiB
	f.put(made, map[string]string{"big.csv": text, "more": text + "x"})
	s := newSite(t, f, int64(len(text)))
	link := s.links.URL("team", string(made), "big.csv", int64(len(text)))
	if link == "" {
		t.Fatal("got no link to a file of 40 MiB, want one")
	}
	whole := s.ask("GET", link)
	if whole.status != 200 || whole.body != text || whole.header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Errorf("got %d, %d bytes and %q; want 200 and the file", whole.status, len(whole.body), whole.header)
	}
	head := s.ask("HEAD", link)
	if head.status != 200 || head.length != int64(len(text)) || head.header.Get("ETag") != whole.header.Get("ETag") || len(head.header.Get("ETag")) != 66 {
		t.Errorf("HEAD: got %d, length %d and ETag %s; want those of GET (%s)", head.status, head.length, head.header.Get("ETag"), whole.header.Get("ETag"))
	}
	part := s.ask("GET", link, "Range: bytes=41943030-")
	if part.status != 206 || part.body != "6789abcdef" {
		t.Errorf("got %d %q, want 206 and the last ten bytes", part.status, part.body)
	}
	if got := s.ask("GET", link, "If-None-Match: "+head.header.Get("ETag")); got.status != 304 {
		t.Errorf("got %d for the known ETag, want 304", got.status)
	}
	if n := f.opened.Load(); n != 0 {
		t.Errorf("got %d copies that are not closed, want none", n)
	}
	if got := s.links.URL("team", string(made), "more", int64(len(text))+1); got != "" {
		t.Errorf("got the link %s for a file above the bound, want none", got)
	}
	s.status(413, "GET", s.url+"/files/"+string(made)+"/more")
}

// TestFilesBehindADoor: without a signature a caller reads files of the namespaces that it
// holds, and of no other.
func TestFilesBehindADoor(t *testing.T) {
	f := newFake()
	const id = "sess_0123456789abcdef01234567"
	f.put(id, map[string]string{"a.txt": "text"})
	h := server.Files(server.FilesConfig{Engine: f, Links: server.NewLinks("home", 0), Names: []string{"example.com"}})
	who := sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"team-b", "team-c"}, Actor: "http key 2"}
	for query, want := range map[string]string{"": "team-b", "?ns=team-c": "team-c", "?ns=home": "", "?ns=team-a": "", "?ns=*": "", "?ns=team-c&sig=x": ""} {
		f.reads = nil
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(door.WithIdentity(t.Context(), who), http.MethodGet, "/files/"+id+"/a.txt"+query, nil)
		h.ServeHTTP(w, r)
		switch {
		case want == "" && (w.Code < 400 || len(f.reads) > 0):
			t.Errorf("%s: got %d and the reads %v, want a refusal", query, w.Code, f.reads)
		case want != "" && (w.Code != http.StatusOK || len(f.reads) == 0 || !strings.HasPrefix(f.reads[0], want+" ")):
			t.Errorf("%s: got %d and the reads %v, want one in %s", query, w.Code, f.reads, want)
		}
	}
}

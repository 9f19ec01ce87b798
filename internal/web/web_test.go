package web_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/web"
)

// site is a web server that the client may reach.
func site(t testing.TB, pages map[string]http.HandlerFunc) (url string, c *web.Client) {
	t.Helper()
	mux := http.NewServeMux()
	for path, fn := range pages {
		mux.HandleFunc(path, fn)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL, web.New(web.Config{Allow: []string{s.Listener.Addr().String()}, SearXNG: s.URL})
}

// sends answers with a body of a type.
func sends(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = fmt.Fprint(w, body)
	}
}

func fetch(t *testing.T, c *web.Client, ask sandboxmcp.PageAsk) sandboxmcp.Page {
	t.Helper()
	p, err := c.Fetch(t.Context(), ask, noPDF)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPagesAreMarkdown(t *testing.T) {
	const article = `<p>A first paragraph that is long enough to be an article, with <b>bold</b> words in it.</p>`
	for name, c := range map[string]struct{ kind, page, want string }{
		"Links":    {"text/html", `<title>T</title><p><a href="/x?y=1">in</a> <a href="javascript:f()">js</a> <a href="//other.test/">out</a>`, "[in](SITE/x?y=1) js [out](http://other.test/)\n"},
		"Base":     {"text/html", `<base href="http://base.test/d/"><p><a href="x">in</a>`, "[in](http://base.test/d/x)\n"},
		"NoScript": {"text/html", `<p>seen<script>f()</script><style>p{}</style><span hidden>a</span><b style="display: none">b</b><!-- c -->`, "seen\n"},
		"Table":    {"text/html", `<table><tr><th>A<th>B<tr><td>1<td>2</table>`, "| A | B |\n|---|---|\n| 1 | 2 |\n"},
		"Article":  {"text/html", `<nav>menu</nav><article>` + strings.Repeat(article, 10) + `</article><footer>foot</footer>`, strings.TrimSpace(strings.Repeat("A first paragraph that is long enough to be an article, with **bold** words in it.\n\n", 10)) + "\n"},
		"Latin":    {"text/html; charset=iso-8859-1", "<p>h\xe4l", "häl\n"},
		"Meta":     {"text/html", "<meta charset=windows-1252><p>h\xe4l \x80", "häl €\n"},
		"Plain":    {"text/plain", "a\r\nb\x1b[31m\x00", "a\nb[31m"},
		"JSON":     {"application/json", `{"a": 1}`, `{"a": 1}`},
		"Guessed":  {"", "<html><p>x", "x\n"},
		"Marks":    {"text/html", "<p>a_b_c *d* [e] &lt;f&gt; `g`", "a_b_c *d* [e] &lt;f&gt; `g`\n"},
		"Many":     {"text/html", strings.Repeat("<i>x</i>\n", 31_000), strings.Repeat("x\n", 4000)},
		"Empty":    {"text/html", "", "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			url, client := site(t, map[string]http.HandlerFunc{"/": sends(c.kind, c.page)})
			p := fetch(t, client, sandboxmcp.PageAsk{URL: url})
			if diff := cmp.Diff(strings.ReplaceAll(c.want, "SITE", url), p.Content); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPartsOfAPage: the parts join to the whole, which counts characters and not bytes.
func TestPartsOfAPage(t *testing.T) {
	text := strings.Repeat("äöü€😀", 400)
	url, c := site(t, map[string]http.HandlerFunc{"/": sends("text/plain; charset=utf-8", text)})
	var joined strings.Builder
	for offset := 0; ; {
		p := fetch(t, c, sandboxmcp.PageAsk{URL: url, MaxLength: 333, Offset: offset})
		n := len([]rune(p.Content))
		if p.TotalLength != 2000 || n > 333 || p.Truncated != (offset+n < 2000) {
			t.Fatalf("at %d: got %d characters of %d, truncated %v", offset, n, p.TotalLength, p.Truncated)
		}
		joined.WriteString(p.Content)
		offset += n
		if !p.Truncated {
			break
		}
	}
	if joined.String() != text {
		t.Error("the parts are not the whole")
	}
	if p := fetch(t, c, sandboxmcp.PageAsk{URL: url, Offset: 5000}); p.Content != "" || p.Truncated {
		t.Errorf("behind the end: got %q", p.Content)
	}
}

// TestAddressesThatAreRefused: nothing connects, however the address is written and wherever
// it comes from.
func TestAddressesThatAreRefused(t *testing.T) {
	var hits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer other.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	url, c := site(t, map[string]http.HandlerFunc{
		"/other": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) },
		"/file": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		},
		"/user": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://u:p@x.test/", http.StatusFound)
		},
		"/mail": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://x.test:25/RCPT", http.StatusFound)
		},
		"/loop": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) },
	})
	for text, want := range map[string]sandboxmcp.Code{
		other.URL:                                    sandboxmcp.CodeBlockedAddress,
		"http://localhost:" + port:                   sandboxmcp.CodeBlockedAddress,
		"http://LOCALHOST.:" + port:                  sandboxmcp.CodeBlockedAddress,
		"http://[::ffff:127.0.0.1]:" + port:          sandboxmcp.CodeBlockedAddress,
		"http://[64:ff9b::7f00:1]:" + port:           sandboxmcp.CodeBlockedAddress,
		"http://169.254.169.254/":                    sandboxmcp.CodeBlockedAddress,
		"http://0/":                                  sandboxmcp.CodeInvalidArgument,
		"http://2130706433:" + port:                  sandboxmcp.CodeInvalidArgument,
		"http://127.1:" + port:                       sandboxmcp.CodeInvalidArgument,
		"http://u:p@127.0.0.1:" + port:               sandboxmcp.CodeInvalidArgument,
		"file:///etc/passwd":                         sandboxmcp.CodeInvalidArgument,
		"http://":                                    sandboxmcp.CodeInvalidArgument,
		"http://x.test:0/":                           sandboxmcp.CodeInvalidArgument,
		"http://x.test:99999/":                       sandboxmcp.CodeInvalidArgument,
		"http://x.test/" + strings.Repeat("a", 9000): sandboxmcp.CodeInvalidArgument,
		"http://x.test:25/RCPT":                      sandboxmcp.CodeBlockedAddress,
		"https://x.test:6379/":                       sandboxmcp.CodeBlockedAddress,
		url + "/mail":                                sandboxmcp.CodeBlockedAddress,
		url + "/other":                               sandboxmcp.CodeBlockedAddress,
		url + "/file":                                sandboxmcp.CodeFetchFailed,
		url + "/user":                                sandboxmcp.CodeFetchFailed,
		url + "/loop":                                sandboxmcp.CodeFetchFailed,
	} {
		if _, err := c.Fetch(t.Context(), sandboxmcp.PageAsk{URL: text}, noPDF); sandboxmcp.CodeOf(err) != want {
			t.Errorf("%.60s: got %v, want %s", text, err, want)
		}
	}
	if hits.Load() != 0 {
		t.Errorf("got %d requests at the other server, want none", hits.Load())
	}
}

// TestProxyVariablesAreIgnored: a proxy would connect past the check of addresses.
func TestProxyVariablesAreIgnored(t *testing.T) {
	var hits atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	c := web.New(web.Config{})
	if _, err := c.Fetch(t.Context(), sandboxmcp.PageAsk{URL: "http://10.0.0.1/"}, noPDF); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBlockedAddress || hits.Load() > 0 {
		t.Errorf("got %v and %d requests at the proxy", err, hits.Load())
	}
}

// noPDF reads no document.
func noPDF(context.Context, []byte) (string, error) {
	return "", sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "no reader")
}

// TestPDFGoesToItsReader: also if the server does not declare it.
func TestPDFGoesToItsReader(t *testing.T) {
	url, c := site(t, map[string]http.HandlerFunc{"/declared": sends("application/pdf", "%PDF-1.7"), "/unknown": sends("application/octet-stream", "%PDF-1.7"), "/text": sends("text/plain", "%PDF-1.7")})
	for path, want := range map[string]string{"/declared": "<%PDF-1.7>", "/unknown": "<%PDF-1.7>", "/text": "%PDF-1.7"} {
		p, err := c.Fetch(t.Context(), sandboxmcp.PageAsk{URL: url + path}, func(_ context.Context, b []byte) (string, error) { return "<" + string(b) + ">\x1b", nil })
		if err != nil || p.Content != want {
			t.Errorf("%s: got %q, %v, want %q", path, p.Content, err, want)
		}
	}
}

// TestHostilePages: each is answered with a failure or with something small, in seconds.
func TestHostilePages(t *testing.T) {
	gz := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/html")
		z := gzip.NewWriter(w)
		for range 64 {
			_, _ = z.Write(make([]byte, 1<<20))
		}
		_ = z.Close()
	}
	pages := map[string]http.HandlerFunc{"/gz": gz, "/pdf": sends("application/pdf", "%PDF-1.7")}
	for name, unit := range map[string]string{
		"div": "<div>", "p": "<p>x", "a": "<a href=x>", "b": "<b><i>", "table": "<table><tr><td>", "list": "<ul><li>", "quote": "<blockquote>", "font": "<font>", "br": "<br>", "span": "<span>x</span> ",
		"attr": "<p a=1 b=2 c=3 d=4>", "amp": "&amp;", "less": "<", "code": "<pre><code>", "select": "<select><option>", "nest": "<div><p>text, text, text and more, so that it counts</p>", "svg": "<svg><math>", "template": "<template>",
		"cells": "<td>a|b", "star": "*_`[", "under": "a_b_", "h": "<h1>h</h1>", "img": "<img src=x alt=y>",
	} {
		pages["/"+name] = sends("text/html", strings.Repeat(unit, 1_000_000/len(unit)))
	}
	pages["/onetag"] = sends("text/html", "<p "+strings.Repeat("a", 1_000_000))
	pages["/table1"] = sends("text/html", "<table><tr>"+strings.Repeat("<td>1", 100_000)+"</table>")
	pages["/span"] = sends("text/html", "<table><tr><td colspan=60000 rowspan=60000>a<td>b")
	pages["/covered"] = sends("text/html", "<table>"+strings.Repeat("<tr><td rowspan=20000>a", 14_000))
	pages["/ragged"] = sends("text/html", "<table><tr>"+strings.Repeat("<td>", 14_000)+strings.Repeat("<tr><td>a", 14_000))
	pages["/deep"] = sends("text/html", strings.Repeat("<div>", 480)+"<p>"+strings.Repeat("word word, ", 340_000))
	pages["/indented"] = sends("text/html", strings.Repeat("<ul><li>", 200)+"<pre>"+strings.Repeat("x\n", 200_000))
	pages["/base"] = sends("text/html", "<base href='http://a.example/"+strings.Repeat("a/", 100_000)+"'>"+strings.Repeat("<a href=../x>y</a>", 14_000))
	url, c := site(t, pages)
	for path := range pages {
		started := time.Now()
		p, err := c.Fetch(t.Context(), sandboxmcp.PageAsk{URL: url + path}, noPDF)
		if d := time.Since(started); d > 2*time.Second {
			t.Logf("%s: %s", path, d)
		}
		switch {
		case err != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeFetchFailed && sandboxmcp.CodeOf(err) != sandboxmcp.CodeFileTooLarge:
			t.Errorf("%s: got %v, want fetch_failed or file_too_large", path, err)
		case len([]rune(p.Content)) > 8000:
			t.Errorf("%s: got %d characters", path, len(p.Content))
		}
	}
}

// TestEncodedPagesAreNoText: a page in an encoding that was not asked for would be read as other characters.
func TestEncodedPagesAreNoText(t *testing.T) {
	pages := map[string]http.HandlerFunc{}
	for _, coding := range []string{"br", "zstd", "deflate", "x-gzip", "gzip,gzip", "identity"} {
		pages["/"+coding] = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", coding)
			sends("text/html", "\x0b\x02\x80hello\x03")(w, r)
		}
	}
	url, c := site(t, pages)
	for path := range pages {
		p, err := c.Fetch(t.Context(), sandboxmcp.PageAsk{URL: url + path}, noPDF)
		if refused := sandboxmcp.CodeOf(err) == sandboxmcp.CodeFetchFailed && strings.Contains(err.Error(), "not asked for"); refused != (path != "/identity") {
			t.Errorf("%s: got %q, %v, want it refused unless it is identity", path, p.Content, err)
		}
	}
}

func TestCancelledFetch(t *testing.T) {
	began := make(chan struct{})
	url, c := site(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := c.Fetch(ctx, sandboxmcp.PageAsk{URL: url}, noPDF); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v, want cancelled", err)
	}
}

func TestErrorPages(t *testing.T) {
	url, c := site(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, "<h1>gone</h1>")
	}})
	if p := fetch(t, c, sandboxmcp.PageAsk{URL: url}); p.Status != http.StatusNotFound || p.Content != "## gone\n" {
		t.Errorf("got %+v, want the page with its status", p)
	}
}

// TestLongHosts: a very long host is refused before it is converted to ASCII, which takes quadratic time. The conversion
// would remove the soft hyphens, so the short host is valid.
func TestLongHosts(t *testing.T) {
	for n, ok := range map[int]bool{10: true, 600: false} {
		if u, err := web.ParseURL("https://a" + strings.Repeat("\u00ad", n) + ".example/"); (err == nil) != ok {
			t.Errorf("%d soft hyphens: got %v, %v", n, u, err)
		}
	}
}

// TestNoConnectionOutlivesItsPermission: if a permission is withdrawn, an idle connection to that host is closed and not used
// again.
func TestNoConnectionOutlivesItsPermission(t *testing.T) {
	url, c := site(t, map[string]http.HandlerFunc{"/": sends("text/plain", "seen")})
	fetch(t, c, sandboxmcp.PageAsk{URL: url})
	c.SetAllow(nil)
	if p, err := c.Fetch(t.Context(), sandboxmcp.PageAsk{URL: url}, noPDF); err == nil {
		t.Errorf("got %+v, want an error", p)
	}
}

// TestNoConnectionInUseOutlivesItsPermission: a connection that carries a request while its permission ends carries no
// further one.
func TestNoConnectionInUseOutlivesItsPermission(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	url, c := site(t, map[string]http.HandlerFunc{
		"/slow": func(w http.ResponseWriter, _ *http.Request) {
			close(asked)
			<-answer
			_, _ = w.Write([]byte("late"))
		},
		"/": sends("text/plain", "private"),
	})
	slow := make(chan error, 1)
	go func() {
		_, err := c.Fetch(t.Context(), sandboxmcp.PageAsk{URL: url + "/slow"}, noPDF)
		slow <- err
	}()
	<-asked
	other := httptest.NewServer(sends("text/plain", "other"))
	defer other.Close()
	c.SetAllow([]string{other.Listener.Addr().String()})
	fetch(t, c, sandboxmcp.PageAsk{URL: other.URL}) // so that the client keeps idle connections again
	close(answer)
	if err := <-slow; err != nil {
		t.Errorf("the request that went on: %v", err)
	}
	if p, err := c.Fetch(t.Context(), sandboxmcp.PageAsk{URL: url + "/"}, noPDF); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBlockedAddress {
		t.Errorf("got %q and %v, want blocked_address", p.Content, err)
	}
}

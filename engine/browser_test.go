package engine_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/browser"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// web is a web server that the browser may reach, and one that it may not.
type web struct {
	url, other string
	hits       atomic.Int32 // connections to other

	mu    sync.Mutex
	asked []string
}

// openWeb opens an engine with a browser that may reach a web server with these pages. In
// them, SITE and OTHER are the two servers without their scheme.
func openWeb(t *testing.T, pages map[string]string, allowOther ...bool) (*engine.Engine, *web) {
	t.Helper()
	_, err := browser.Find(func(string) bool { return false })
	testkit.Need(t, "browser", err == nil, "no browser is installed")
	w := &web{}
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			w.hits.Add(1)
		}
	}
	other.Start()
	t.Cleanup(other.Close)
	var words *strings.Replacer
	site := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, r.URL.Path)
		w.mu.Unlock()
		page, ok := pages[r.URL.Path]
		to, redirect := strings.CutPrefix(page, "-> ")
		switch {
		case !ok:
			http.NotFound(rw, r)
		case redirect:
			rw.Header().Set("Location", words.Replace(to))
			rw.WriteHeader(http.StatusFound)
		case page == "endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(rw, "<p>more</p>"); err != nil {
					return
				}
				rw.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		case page == "silent":
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, ".bin"):
			rw.Header().Set("Content-Type", "application/octet-stream")
			rw.Header().Set("Content-Disposition", "attachment")
			_, _ = io.WriteString(rw, page)
		case strings.HasSuffix(r.URL.Path, ".js"):
			rw.Header().Set("Content-Type", "text/javascript")
			_, _ = io.WriteString(rw, words.Replace(page))
		default:
			rw.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(rw, words.Replace(page))
		}
	}))
	t.Cleanup(site.Close)
	w.url, w.other = site.URL, other.URL
	words = strings.NewReplacer("SITE", site.Listener.Addr().String(), "OTHER", other.Listener.Addr().String())
	allow := []string{site.Listener.Addr().String()}
	if len(allowOther) > 0 {
		allow = append(allow, other.Listener.Addr().String())
	}
	return openReal(t, func(c *engine.Config) { c.WebAllow = allow }), w
}

// browse opens a page and returns it and the error. It has the longest time limit, for a machine that is busy.
func browse(t *testing.T, e *engine.Engine, ask sandboxmcp.BrowserAsk) (sandboxmcp.BrowserPage, error) {
	t.Helper()
	if ask.TimeoutMS == 0 {
		ask.TimeoutMS = 120_000
	}
	return e.BrowsePage(t.Context(), sandboxmcp.Caller{}, ask)
}

func TestBrowserShowsWhatScriptsMake(t *testing.T) {
	e, w := openWeb(t, map[string]string{
		"/late":   `<title>L</title><div id=x>before</div><script>setTimeout(() => { x.innerHTML = '<h1>after</h1>' }, 300)</script>`,
		"/fetch":  `<title>F</title><p id=x><script>fetch('/data').then(r => r.text()).then(s => { x.textContent = s })</script>`,
		"/data":   "fetched häl",
		"/moves":  `<script>setTimeout(() => location = '/late', 50)</script>`,
		"/-":      "-> /late",
		"/asks":   `<p id=x>one</p><script>alert(1); x.textContent = [confirm('2'), prompt('3', 'four')].join(); addEventListener('beforeunload', e => e.preventDefault())</script>`,
		"/opens":  `<p id=x>one</p><script>x.textContent = String(window.open('/late'))</script>`,
		"/waits":  `<p>before<script>fetch('/silent')</script>`,
		"/silent": "silent",
		"/hidden": `<div id=x style="display:none"><h2>seen</h2></div><script>setTimeout(() => x.style.display = 'block', 200)</script>`,
	})
	for name, c := range map[string]struct {
		ask  sandboxmcp.BrowserAsk
		want sandboxmcp.BrowserPage
	}{
		"Selector": {sandboxmcp.BrowserAsk{URL: "/late", WaitFor: "h1"}, sandboxmcp.BrowserPage{URL: "/late", Title: "L", Status: 200, Content: "## after\n"}},
		"Visible":  {sandboxmcp.BrowserAsk{URL: "/hidden", WaitFor: "h2", WaitUntil: "commit"}, sandboxmcp.BrowserPage{URL: "/hidden", Status: 200, Content: "## seen\n"}},
		"Load":     {sandboxmcp.BrowserAsk{URL: "/waits", WaitUntil: "load"}, sandboxmcp.BrowserPage{URL: "/waits", Status: 200, Content: "before\n"}},
		"Idle":     {sandboxmcp.BrowserAsk{URL: "/fetch"}, sandboxmcp.BrowserPage{URL: "/fetch", Title: "F", Status: 200, Content: "fetched häl\n"}},
		"Moves":    {sandboxmcp.BrowserAsk{URL: "/moves", WaitFor: "h1"}, sandboxmcp.BrowserPage{URL: "/late", Title: "L", Status: 200, Content: "## after\n"}},
		"Redirect": {sandboxmcp.BrowserAsk{URL: "/-", WaitFor: "h1"}, sandboxmcp.BrowserPage{URL: "/late", Title: "L", Status: 200, Content: "## after\n"}},
		"Dialogs":  {sandboxmcp.BrowserAsk{URL: "/asks"}, sandboxmcp.BrowserPage{URL: "/asks", Status: 200, Content: "true,\n"}},
		"Windows":  {sandboxmcp.BrowserAsk{URL: "/opens"}, sandboxmcp.BrowserPage{URL: "/opens", Status: 200, Content: "null\n"}},
		"Missing":  {sandboxmcp.BrowserAsk{URL: "/none"}, sandboxmcp.BrowserPage{URL: "/none", Status: 404, Content: "404 page not found\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.ask.URL, c.want.URL = w.url+c.ask.URL, w.url+c.want.URL
			got, err := browse(t, e, c.ask)
			if name == "Missing" {
				got.Content = strings.Trim(got.Content, "`\n") + "\n"
			}
			if err != nil || got.URL != c.want.URL || got.Title != c.want.Title || got.Status != c.want.Status || got.Content != c.want.Content {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	shot, err := browse(t, e, sandboxmcp.BrowserAsk{URL: w.url + "/late", Screenshot: true})
	if err != nil || !strings.HasPrefix(string(shot.Screenshot), "\x89PNG") {
		t.Errorf("got %q, %v; want a PNG", base64.StdEncoding.EncodeToString(shot.Screenshot[:min(8, len(shot.Screenshot))]), err)
	}
}

// tried is the begin of a page that says what came of what it has tried.
const tried = `<p id=x>one</p><script>const done = s => { x.innerHTML = '<b>' + s + '</b>' };`

// parts is a page that tries to reach OTHER in every way that is no navigation.
const parts = tried + `
			const all = [
				fetch('http://OTHER/', {mode: 'no-cors'}), fetch('https://OTHER/'), fetch('http://localhost:' + 'OTHER'.split(':')[1], {mode: 'no-cors'}), fetch('http://SITE@OTHER/'),
				...['ws', 'wss'].map(scheme => new Promise((yes, no) => { const s = new WebSocket(scheme + '://OTHER/'); s.onopen = yes; s.onerror = no })),
				new Promise(yes => { const c = new RTCPeerConnection({iceServers: [{urls: 'stun:OTHER'}]}); c.createDataChannel('d'); c.createOffer().then(o => c.setLocalDescription(o)); setTimeout(yes, 1500) }),
				new Promise((yes, no) => { const w = new Worker(URL.createObjectURL(new Blob(["fetch('http://OTHER/', {mode: 'no-cors'}).then(() => postMessage(1), () => postMessage(2))"]))); w.onmessage = yes; w.onerror = no }),
			];
			Promise.allSettled(all).then(() => done('tried'))</script>
			<iframe src="http://OTHER/"></iframe><iframe src="file:///etc/passwd"></iframe><img src="http://OTHER/i.png"><link rel=prefetch href="http://OTHER/p"><link rel=dns-prefetch href="//OTHER"><link rel=preconnect href="http://OTHER">`

// If OTHER is open, the page reaches it: the test below can fail.
func TestBrowserReachesWhatIsOpen(t *testing.T) {
	e, w := openWeb(t, map[string]string{"/parts": parts}, true)
	p, err := browse(t, e, sandboxmcp.BrowserAsk{URL: w.url + "/parts", WaitFor: "b", WaitUntil: "load"})
	if n := w.hits.Load(); err != nil || n < 2 {
		t.Errorf("got %q, %v and %d connections; want several", p.Content, err, n)
	}
}

// No page reaches an address that is not open, whatever it tries, and each refusal is told.
func TestBrowserReachesNothingElse(t *testing.T) {
	e, w := openWeb(t, map[string]string{
		"/redirect":  "-> http://OTHER/",
		"/https":     "-> https://OTHER/",
		"/metadata":  "-> http://169.254.169.254/latest/meta-data/",
		"/file":      "-> file:///etc/passwd",
		"/data":      "-> data:text/html,<p>in",
		"/loop":      "-> /loop",
		"/unsafe":    "-> http://127.0.0.1:1/",
		"/jsfile":    `<p id=x>stays</p><script>location = 'file:///etc/passwd'</script>`,
		"/jschrome":  `<p id=x>stays</p><script>location = 'chrome://version'</script>`,
		"/jsother":   `<script>location = 'http://OTHER/'</script>`,
		"/jssecure":  `<script>location = 'https://OTHER/'</script>`,
		"/parts":     parts,
		"/worker":    tried + `navigator.serviceWorker.register('/w.js').then(() => navigator.serviceWorker.ready).then(() => fetch('/through')).then(r => r.text()).then(done, e => done('refused'))</script>`,
		"/w.js":      `addEventListener('install', e => skipWaiting()); addEventListener('activate', e => e.waitUntil(clients.claim())); addEventListener('fetch', e => e.respondWith(fetch('http://OTHER/', {mode: 'no-cors'}).catch(() => new Response('refused'))))`,
		"/through":   "refused",
		"/down.bin":  "bytes",
		"/downloads": `<p>one</p><b>kept</b><script>const a = document.createElement('a'); a.href = '/down.bin'; a.click()</script>`,
	})
	for path, want := range map[string]string{
		"/redirect": "blocked_address", "/https": "blocked_address", "/metadata": "blocked_address", "/jsother": "blocked_address", "/jssecure": "blocked_address",
		"/file": "fetch_failed", "/data": "fetch_failed", "/loop": "fetch_failed", "/down.bin": "fetch_failed",
		"/jsfile": "stays", "/jschrome": "stays", "/parts": "**tried**",
		"/worker": "**", "/downloads": "**kept**",
	} {
		t.Run(strings.Trim(path, "/"), func(t *testing.T) {
			ask := sandboxmcp.BrowserAsk{URL: w.url + path}
			if strings.Contains(want, "**") {
				ask.WaitFor, ask.WaitUntil = "b", "load"
			}
			p, err := browse(t, e, ask)
			if got := p.Content + string(sandboxmcp.CodeOf(err)); err == nil && !strings.Contains(got, want) || err != nil && string(sandboxmcp.CodeOf(err)) != want {
				t.Errorf("got %q, %v; want %s", p.Content, err, want)
			}
		})
	}
	for _, u := range []string{w.other, "http://127.0.0.1:1/", "http://localhost:22", w.url + "/unsafe", strings.Replace(w.other, "127.0.0.1", "localhost", 1), strings.Replace(w.other, "127.0.0.1", "[::ffff:127.0.0.1]", 1)} {
		if _, err := browse(t, e, sandboxmcp.BrowserAsk{URL: u}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBlockedAddress {
			t.Errorf("%s: got %v, want blocked_address", u, err)
		}
	}
	for _, u := range []string{"file:///etc/passwd", "chrome://version", "data:text/html,x", "about:blank", "view-source:" + w.url, "javascript:1", ""} {
		if _, err := browse(t, e, sandboxmcp.BrowserAsk{URL: u}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s: got %v, want invalid_argument", u, err)
		}
	}
	if n := w.hits.Load(); n != 0 {
		t.Errorf("got %d connections to a host that is not open, want none", n)
	}
}

// Pages that never end, are too large or take the browser down get an answer, and leave nothing.
func TestBrowserIsBounded(t *testing.T) {
	e, w := openWeb(t, map[string]string{
		"/endless": "endless", "/silent": "silent",
		"/busy":    `<p>one</p><script>setTimeout(() => { for (;;); }, 100)</script>`,
		"/reloads": `<p>one</p><script>setTimeout(() => location.reload(), 10)</script>`,
		"/large":   `<p id=x></p><script>let s = 'x'.repeat(1 << 20); for (let i = 0; i < 5; i++) x.append(s)</script>`,
		"/nodes":   `<p>one</p><script>const s = '<i>y</i>'.repeat(100000); for (;;) document.body.insertAdjacentHTML('beforeend', s)</script>`,
		"/memory":  `<p>one</p><script>const a = []; for (;;) a.push(new Uint8Array(1 << 24).fill(1))</script>`,
		"/alerts":  `<p>one</p><script>setInterval(() => alert(1), 1); for (let i = 0; i < 50; i++) alert(i)</script>`,
		"/windows": `<p>one</p><script>for (let i = 0; i < 1000; i++) window.open('/alerts')</script>`,
		"/bad":     `<p>one</p>`,
	})
	for name, c := range map[string]struct {
		ask  sandboxmcp.BrowserAsk
		want []string // codes; "": the page
	}{
		"Endless":  {sandboxmcp.BrowserAsk{URL: "/endless", TimeoutMS: 3000}, []string{"fetch_failed"}},
		"Silent":   {sandboxmcp.BrowserAsk{URL: "/silent", TimeoutMS: 3000}, []string{"fetch_failed"}},
		"Busy":     {sandboxmcp.BrowserAsk{URL: "/busy", TimeoutMS: 3000}, []string{"fetch_failed"}},
		"Reloads":  {sandboxmcp.BrowserAsk{URL: "/reloads", TimeoutMS: 3000}, []string{"fetch_failed"}},
		"Large":    {sandboxmcp.BrowserAsk{URL: "/large"}, []string{"file_too_large", "fetch_failed"}}, // the latter where memory is watched, and pages that processes share count for each
		"Nodes":    {sandboxmcp.BrowserAsk{URL: "/nodes", TimeoutMS: 20000}, []string{"fetch_failed"}},
		"Memory":   {sandboxmcp.BrowserAsk{URL: "/memory", TimeoutMS: 20000}, []string{"fetch_failed", ""}},
		"Alerts":   {sandboxmcp.BrowserAsk{URL: "/alerts", TimeoutMS: 20000, WaitUntil: "load"}, []string{"", "fetch_failed"}},
		"Windows":  {sandboxmcp.BrowserAsk{URL: "/windows", TimeoutMS: 120_000}, []string{""}},
		"Never":    {sandboxmcp.BrowserAsk{URL: "/bad", TimeoutMS: 3000, WaitFor: "h6"}, []string{"fetch_failed"}},
		"Selector": {sandboxmcp.BrowserAsk{URL: "/bad", WaitFor: "]["}, []string{"invalid_argument"}},
		"Until":    {sandboxmcp.BrowserAsk{URL: "/bad", WaitUntil: "later"}, []string{"invalid_argument"}},
		"Time":     {sandboxmcp.BrowserAsk{URL: "/bad", TimeoutMS: 120_001}, []string{"invalid_argument"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.ask.URL = w.url + c.ask.URL
			p, err := browse(t, e, c.ask)
			code := ""
			if err != nil {
				code = string(sandboxmcp.CodeOf(err))
			}
			if !slices.Contains(c.want, code) {
				t.Errorf("got %.80q, %v; want one of %q", p.Content, err, c.want)
			}
			t.Log(err)
		})
	}
	if p, err := browse(t, e, sandboxmcp.BrowserAsk{URL: w.url + "/bad", WaitUntil: "load"}); err != nil || p.Content != "one\n" {
		t.Errorf("afterwards: got %q, %v; want the page", p.Content, err)
	}
	gone(t)
}

// Two pages at once, and one that is cancelled.
func TestBrowserAtOnceAndCancelled(t *testing.T) {
	e, w := openWeb(t, map[string]string{"/1": "<p>1", "/2": "<p>2", "/silent": "silent"})
	var all sync.WaitGroup
	for n := range 2 {
		all.Go(func() {
			path := "/" + strconv.Itoa(n+1)
			p, err := browse(t, e, sandboxmcp.BrowserAsk{URL: w.url + path, WaitUntil: "load"})
			if err != nil || p.Content != path[1:]+"\n" {
				t.Errorf("%s: got %q, %v; want %s", path, p.Content, err, path[1:])
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := e.BrowsePage(ctx, sandboxmcp.Caller{}, sandboxmcp.BrowserAsk{URL: w.url + "/silent", TimeoutMS: 120_000})
		failed <- err
	}()
	deadline := time.Now().Add(time.Minute)
	for {
		w.mu.Lock()
		asked := slices.Contains(w.asked, "/silent")
		w.mu.Unlock()
		if asked {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the page was not asked for")
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	gone(t)
	if err := <-failed; sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
}

// gone waits until no process of a browser that this process has started is left. It does not wait until a page's time
// is over.
func gone(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		left := browsers()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %q, want no process of a browser", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// browsers lists the processes below this one that were started as a browser.
func browsers() (list []string) {
	me := strconv.Itoa(os.Getpid())
	parents := map[string]string{}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range all {
		b, _ := os.ReadFile(f)
		_, rest, ok := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); ok && len(fields) > 1 && fields[0] != "Z" {
			parents[filepath.Base(filepath.Dir(f))] = fields[1]
		}
	}
	for pid := range parents {
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if !strings.Contains(string(line), "--remote-debugging-pipe") {
			continue
		}
		for p := pid; p != "" && p != "1" && p != "0"; p = parents[p] {
			if p == me {
				list = append(list, fmt.Sprint(pid, " ", strings.ReplaceAll(string(line[:min(60, len(line))]), "\x00", " ")))
				break
			}
		}
	}
	return list
}

// TestBrowserJudgesTheFirstURLItself: without a browser, and on ports that browsers refuse.
func TestBrowserJudgesTheFirstURLItself(t *testing.T) {
	e := open(t, &fake{}, func(c *engine.Config) { c.WebAllow = []string{"127.0.0.1:2"} })
	for u, want := range map[string]sandboxmcp.Code{
		"http://127.0.0.1:1/": sandboxmcp.CodeBlockedAddress, "http://127.0.0.1:22": sandboxmcp.CodeBlockedAddress, "https://[::1]:6667/x": sandboxmcp.CodeBlockedAddress,
		"http://localhost:25/": sandboxmcp.CodeBlockedAddress, "http://a.localhost:1": sandboxmcp.CodeBlockedAddress, "http://10.0.0.1/": sandboxmcp.CodeBlockedAddress,
	} {
		if _, err := browse(t, e, sandboxmcp.BrowserAsk{URL: u}); sandboxmcp.CodeOf(err) != want {
			t.Errorf("%s: got %v, want %s", u, err, want)
		}
	}
	if _, err := browse(t, e, sandboxmcp.BrowserAsk{URL: "http://127.0.0.1:2/"}); sandboxmcp.CodeOf(err) == sandboxmcp.CodeBlockedAddress {
		t.Errorf("an address of web_allow_hosts: got %v, want another error", err)
	}
}

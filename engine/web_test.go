package engine_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/browser"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestWebToolsThatAreOff: each answers with the setting, and asks no one for anything.
func TestWebToolsThatAreOff(t *testing.T) {
	e := open(t, &fake{}, func(c *engine.Config) { c.NoWeb = true })
	for name, call := range map[string]func() error{
		"FetchPage": func() error {
			_, err := e.FetchPage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.PageAsk{URL: "http://a.test/"})
			return err
		},
		"SearchWeb": func() error {
			_, err := e.SearchWeb(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SearchAsk{Query: "x"})
			return err
		},
		"BrowsePage": func() error {
			_, err := e.BrowsePage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.BrowserAsk{URL: "http://a.test/"})
			return err
		},
	} {
		failed := asCode(t, call(), sandboxmcp.CodeNetworkDisabled)
		if !strings.Contains(failed.Hint, "enable_web_access") {
			t.Errorf("%s: got hint %q, want the setting", name, failed.Hint)
		}
	}
}

// deny has a person deny a domain to the caller's namespace.
func deny(t *testing.T, e *engine.Engine, c sandboxmcp.Caller, domain string) {
	t.Helper()
	a, err := e.RequestEgress(t.Context(), c, sandboxmcp.EgressAsk{Domain: domain})
	if err == nil {
		_, err = e.DecideEgress(t.Context(), c, sandboxmcp.AccessDecision{ID: a.ApprovalID, Deny: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestWebToolsObeyADenial: a host that a person has denied is refused at once, also where a page leads
// there, until a person opens it. Other namespaces and hosts are not concerned.
func TestWebToolsObeyADenial(t *testing.T) {
	pages := map[string]string{
		"/away": "-> http://denied.test/secret",
	}
	e, w := openWeb(t, pages)
	deny(t, e, sandboxmcp.Caller{}, "denied.test")
	fetch := func(c sandboxmcp.Caller, url string) sandboxmcp.Code {
		_, err := e.FetchPage(t.Context(), c, sandboxmcp.PageAsk{URL: url})
		return sandboxmcp.CodeOf(err)
	}
	browse := func(c sandboxmcp.Caller, url string) sandboxmcp.Code {
		_, err := e.BrowsePage(t.Context(), c, sandboxmcp.BrowserAsk{URL: url})
		return sandboxmcp.CodeOf(err)
	}
	own := sandboxmcp.Caller{}
	for name, c := range map[string]struct{ got, want sandboxmcp.Code }{
		"fetch":                   {fetch(own, "http://denied.test/"), sandboxmcp.CodeEgressDenied},
		"fetch TLS":               {fetch(own, "https://denied.test/"), sandboxmcp.CodeEgressDenied},
		"fetch another port":      {fetch(own, "http://denied.test:8080/"), sandboxmcp.CodeEgressDenied},
		"fetch in capitals":       {fetch(own, "http://DENIED.test./"), sandboxmcp.CodeEgressDenied},
		"fetch by a redirect":     {fetch(own, w.url+"/away"), sandboxmcp.CodeEgressDenied},
		"fetch another host":      {fetch(own, "http://other.test/"), sandboxmcp.CodeFetchFailed},
		"fetch another namespace": {fetch(of("other"), "http://denied.test/"), sandboxmcp.CodeFetchFailed},
		"browser":                 {browse(own, "http://denied.test/"), sandboxmcp.CodeEgressDenied},
		"browser TLS":             {browse(own, "https://denied.test/"), sandboxmcp.CodeEgressDenied},
		"browser by a redirect":   {browse(own, w.url+"/away"), sandboxmcp.CodeEgressDenied},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", name, c.got, c.want)
		}
	}
	if _, err := e.DecideEgress(t.Context(), own, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "denied.test"}}); err != nil {
		t.Fatal(err)
	}
	if got := fetch(own, "http://denied.test/"); got != sandboxmcp.CodeFetchFailed {
		t.Errorf("after a person has opened it: got %q, want that it is looked for, which fails", got)
	}
}

// onAddress serves pages on an address of loopback.
func onAddress(t *testing.T, address string, serve http.HandlerFunc) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(serve)
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().String()
}

// TestWebRecordsEachHost: a redirect by way of another host is in the record, also if the fetch fails
// after it. What a caller or a web server wrote fills no record, and does not look like its words.
func TestWebRecordsEachHost(t *testing.T) {
	var first, second string
	first = onAddress(t, "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/end" {
			http.Redirect(w, r, "http://"+second+r.URL.Path+"?what=secret", http.StatusFound)
		}
	})
	second = onAddress(t, "127.0.0.2", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", map[string]string{
			"/back": "http://" + first + "/end", "/astray": "http://gone.invalid/",
			"/zone": "http://[fe80::1%25" + strings.Repeat("z", 10_000) + ":%20status%20200]/",
		}[r.URL.Path])
		w.WriteHeader(http.StatusFound)
	})
	e := open(t, &fake{}, func(c *engine.Config) {
		c.WebAllow, c.SearchEngines = []string{first, second}, []string{"mojeek"}
	})
	last := func() string {
		t.Helper()
		page, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{Limit: 1})
		if err != nil || len(page.Entries) != 1 {
			t.Fatalf("the record: got %+v, %v", page, err)
		}
		return page.Entries[0].Detail
	}
	fetch := func(url string) string {
		_, _ = e.FetchPage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.PageAsk{URL: url})
		return last()
	}
	search := func(engine string) string {
		_, _ = e.SearchWeb(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SearchAsk{Query: "x", Engine: engine})
		return last()
	}
	for path, want := range map[string]string{
		"/back":   "127.0.0.1: status 200, and 127.0.0.2",
		"/astray": "127.0.0.1: fetch_failed, and 127.0.0.2 gone.invalid",
		"/zone":   "127.0.0.1: fetch_failed, and 127.0.0.2",
		"/end":    "127.0.0.1: status 200",
	} {
		if got := fetch("http://" + first + path); got != want {
			t.Errorf("%s: got the record %q, want %q", path, got, want)
		}
	}
	long := strings.Repeat("h", 1<<20)
	_, _ = e.BrowsePage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.BrowserAsk{URL: "https://" + long + "/"})
	for what, got := range map[string]string{"browser": last(), "fetch": fetch("https://" + long + "/"), "engine": search(long)} {
		if len(got) > 1000 {
			t.Errorf("%s: got a record of %d bytes", what, len(got))
		}
	}
	if got := fetch("http://[fe80::1%25x:%20status%20200]/"); got != `"fe80::1%x: status 200": invalid_argument` {
		t.Errorf("an address with a zone: got the record %q", got)
	}
	if got := search("mojeek: results=3"); got != `"mojeek: results=3": invalid_argument` {
		t.Errorf("an engine that looks like words of the record: got %q", got)
	}
}

// TestWebAsksNothingUnrecorded: if the audit cannot be written, no host is asked. A request that was begun
// is in the record, also if the server is killed before it ends.
func TestWebAsksNothingUnrecorded(t *testing.T) {
	var e *engine.Engine
	var asked, begun atomic.Int32
	site := onAddress(t, "127.0.0.1", func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if page, err := e.Audit(r.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{Limit: 1}); err == nil && len(page.Entries) == 1 &&
			page.Entries[0].Phase == sandboxmcp.PhaseIntent && page.Entries[0].Detail == "127.0.0.1" {
			begun.Add(1)
		}
	})
	state := filepath.Join(t.TempDir(), "state")
	e = open(t, &fake{}, func(c *engine.Config) { c.StateDir, c.WebAllow = state, []string{site} })
	fetch := func() error {
		_, err := e.FetchPage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.PageAsk{URL: "http://" + site + "/?what=secret"})
		return err
	}
	if err := fetch(); err != nil || asked.Load() != 1 || begun.Load() != 1 {
		t.Errorf("got %v, %d requests and %d with an entry before; want 1", err, asked.Load(), begun.Load())
	}
	storetest.Refuse(t, state)
	if err := fetch(); err == nil || asked.Load() != 1 {
		t.Errorf("without a record: got %v and %d more requests, want an error and none", err, asked.Load()-1)
	}
}

// TestBrowserRecordsEachHost: the record of a page that does not become ready has the hosts that it made
// the browser reach. The browser reaches none that no page asked for.
func TestBrowserRecordsEachHost(t *testing.T) {
	_, err := browser.Find(func(string) bool { return false })
	testkit.Need(t, "browser", err == nil, "no browser is installed")
	parts := make(chan struct{}, 1)
	other := onAddress(t, "127.0.0.3", func(http.ResponseWriter, *http.Request) {
		select {
		case parts <- struct{}{}:
		default:
		}
	})
	site := onAddress(t, "127.0.0.2", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<img src="http://` + other + `/?what=secret">`))
	})
	e := openReal(t, func(c *engine.Config) { c.WebAllow = []string{site, other} })
	_, err = e.BrowsePage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.BrowserAsk{URL: "http://" + site + "/", WaitFor: "#never", TimeoutMS: 15_000})
	asCode(t, err, sandboxmcp.CodeFetchFailed)
	select {
	case <-parts:
	default:
		t.Fatal("the browser did not ask the other host")
	}
	page, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{Limit: 1})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Detail != "127.0.0.2: fetch_failed, and 127.0.0.3" {
		t.Errorf("the record: got %+v, %v; want both hosts", page.Entries, err)
	}
}

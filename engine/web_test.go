package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
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

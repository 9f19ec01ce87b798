package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/PuerkitoBio/goquery"
	"golang.org/x/net/html"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// restFor is how long an engine that has blocked us is not asked again.
const restFor = 10 * time.Minute

// maxResults is how many results an answer has at most.
const maxResults = 50

// errBlocked means that an engine asks for a person, or refuses us.
var errBlocked = errors.New("blocked")

// engine is a search engine.
type engine struct {
	name  string
	query func(q string) string // the URL of its results
	read  func(a answer) ([]sandboxmcp.SearchResult, error)
}

// searxng is the name of the engine that the operator runs.
const searxng = "searxng"

// Engines returns the names of the search engines, in the order in which they are asked.
func (c *Client) Engines() []string {
	var names []string
	for _, e := range c.engines() {
		names = append(names, e.name)
	}
	return names
}

// engines returns the engines that may be asked.
func (c *Client) engines() []engine {
	all := []engine{
		{"duckduckgo", byParameter("https://html.duckduckgo.com/html/", "q"), page(duckduckgo)},
		{"mojeek", byParameter("https://www.mojeek.com/search", "q"), page(mojeek)},
		{"brave", byParameter("https://search.brave.com/search", "q"), page(brave)},
		{"yandex", byParameter("https://yandex.com/search/", "text"), page(yandex)},
	}
	if c.cfg.SearXNG != "" {
		own := strings.TrimSuffix(c.cfg.SearXNG, "/") + "/search"
		query := byParameter(own, "q")
		all = append([]engine{{searxng, func(q string) string { return query(q) + "&format=json" }, searx}}, all...)
	}
	if len(c.cfg.Engines) == 0 {
		return all
	}
	var chosen []engine
	for _, name := range c.cfg.Engines {
		if i := slices.IndexFunc(all, func(e engine) bool { return e.name == name }); i >= 0 {
			chosen = append(chosen, all[i])
		}
	}
	if c.cfg.SearXNG != "" && !slices.Contains(c.cfg.Engines, searxng) {
		chosen = append(all[:1:1], chosen...)
	}
	return chosen
}

func byParameter(place, name string) func(string) string {
	return func(q string) string { return place + "?" + url.Values{name: {q}}.Encode() }
}

// Search asks the engines one after the other until one has results. An engine that blocks
// us never counts as one without results. If no engine answers, Search fails with
// search_unavailable, whose field tried says why.
func (c *Client) Search(ctx context.Context, ask sandboxmcp.SearchAsk) (sandboxmcp.SearchResults, error) {
	q := strings.Join(strings.Fields(ask.Query), " ")
	if q == "" || len(q) > 1000 {
		return sandboxmcp.SearchResults{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "query is empty or longer than 1000 bytes")
	}
	n := ask.MaxResults
	if n == 0 {
		n = 10
	}
	if n < 1 || n > maxResults {
		return sandboxmcp.SearchResults{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "max_results is not from 1 to %d", maxResults)
	}
	engines := c.engines()
	if ask.Engine != "" {
		engines = slices.DeleteFunc(engines, func(e engine) bool { return e.name != ask.Engine })
		if len(engines) == 0 {
			return sandboxmcp.SearchResults{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "engine %s is not known", sandboxmcp.Quote(ask.Engine)).
				WithHint("use one of " + strings.Join(c.Engines(), ", "))
		}
	}
	done := sandboxmcp.SearchResults{Results: []sandboxmcp.SearchResult{}, Tried: []sandboxmcp.TriedEngine{}}
	answered := false
	for _, e := range engines {
		found, err := c.ask(ctx, e, q)
		if ctx.Err() != nil {
			return done, Failure(ctx, &url.URL{Host: e.name}, context.Cause(ctx))
		}
		status := "ok"
		switch {
		case err != nil:
			status = statusOf(err)
		case len(found) == 0:
			status, answered = "no results", true
			done.Engine = e.name
		}
		done.Tried = append(done.Tried, sandboxmcp.TriedEngine{Engine: e.name, Status: status})
		if len(found) > 0 {
			done.Engine, done.Results = e.name, found[:min(n, len(found))]
			return done, nil
		}
	}
	if answered {
		return done, nil
	}
	return done, sandboxmcp.Errorf(sandboxmcp.CodeSearchUnavailable, "no search engine answered").With("tried", done.Tried).
		WithHint("the operator can name a SearXNG of their own in SEARXNG_URL; fetch_webpage fetches a page whose URL is known")
}

// statusOf says why an engine did not answer.
func statusOf(err error) string {
	if errors.Is(err, errBlocked) || errors.Is(err, errResting) {
		return err.Error()
	}
	return sandboxmcp.AsError(err).Message
}

// unnamed returns an error of the operator's own engine without its host, and without the host that it redirects to, because
// models and callers over HTTP read the error.
func unnamed(err error, asked *url.URL) error {
	e := *sandboxmcp.AsError(err)
	e.Message = strings.ReplaceAll(e.Message, asked.Hostname(), searxng)
	if blocked, ok := errors.AsType[*egress.BlockedError](err); ok {
		e.Message = searxng + " has an address that is " + blocked.What
	}
	return &e
}

// errResting means that an engine has blocked us a while ago and is not asked.
var errResting = errors.New("resting")

// ask asks one engine.
func (c *Client) ask(ctx context.Context, e engine, q string) ([]sandboxmcp.SearchResult, error) {
	c.mu.Lock()
	rests := c.cfg.Now().Before(c.rests[e.name])
	c.mu.Unlock()
	if rests {
		return nil, errResting
	}
	u, err := ParseURL(e.query(q))
	if err != nil {
		return nil, err
	}
	a, err := c.get(ctx, u, "text/html,application/json;q=0.9,*/*;q=0.5")
	if err != nil && e.name == searxng {
		return nil, unnamed(err, u)
	}
	if err != nil {
		return nil, err
	}
	found, err := e.read(a)
	if errors.Is(err, errBlocked) {
		c.mu.Lock()
		c.rests[e.name] = c.cfg.Now().Add(restFor)
		c.mu.Unlock()
	}
	return tidy(found), err
}

// tidy makes results fit to be shown: on one line each, with web addresses, each once.
func tidy(found []sandboxmcp.SearchResult) []sandboxmcp.SearchResult {
	seen := map[string]bool{}
	var all []sandboxmcp.SearchResult
	for _, r := range found {
		r.Title, r.Snippet = line(r.Title), line(r.Snippet)
		u, err := ParseURL(r.URL)
		if err != nil || seen[u.String()] {
			continue
		}
		seen[u.String()] = true
		all = append(all, r)
	}
	return all
}

func line(s string) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	return part(s, 0, 500)
}

// page makes a reader of an engine's page of results. The status codes are those with which
// engines refuse programs: DuckDuckGo answers 202 then.
func page(read func(*goquery.Document) ([]sandboxmcp.SearchResult, bool)) func(answer) ([]sandboxmcp.SearchResult, error) {
	return func(a answer) ([]sandboxmcp.SearchResult, error) {
		switch {
		case a.status == http.StatusAccepted, a.status == http.StatusForbidden, a.status == http.StatusTooManyRequests:
			return nil, errBlocked
		case a.status != http.StatusOK:
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "HTTP status %d", a.status)
		}
		tree, err := parse(a.body)
		if err != nil {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "the page of results cannot be read").WithCause(err)
		}
		found, blocked := read(goquery.NewDocumentFromNode(tree))
		if blocked && len(found) == 0 {
			return nil, errBlocked
		}
		return found, nil
	}
}

// searx reads the JSON of a SearXNG.
func searx(a answer) ([]sandboxmcp.SearchResult, error) {
	switch {
	case a.status == http.StatusForbidden:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "HTTP status 403: its setting search.formats has to list json")
	case a.status == http.StatusTooManyRequests:
		return nil, errBlocked
	case a.status != http.StatusOK:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "HTTP status %d", a.status)
	}
	var doc struct {
		Results []struct{ Title, URL, Content string }
	}
	if err := json.Unmarshal(a.body, &doc); err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "its answer is not JSON").WithCause(err)
	}
	var found []sandboxmcp.SearchResult
	for _, r := range doc.Results {
		found = append(found, sandboxmcp.SearchResult{Title: r.Title, URL: r.URL, Snippet: r.Content})
	}
	return found, nil
}

// The readers of the pages of search engines. Each also reports whether the page asks for a
// person. They follow the pages as they were published in 2025.

func duckduckgo(doc *goquery.Document) (found []sandboxmcp.SearchResult, blocked bool) {
	some(doc.Find(".result:not(.result--ad)")).Each(func(_ int, s *goquery.Selection) {
		a := s.Find("a.result__a").First()
		link := a.AttrOr("href", "")
		if u, err := url.Parse(link); err == nil && u.Query().Get("uddg") != "" { // its own redirect
			link = u.Query().Get("uddg")
		}
		found = append(found, sandboxmcp.SearchResult{Title: text(a), URL: link, Snippet: text(s.Find(".result__snippet").First())})
	})
	return found, doc.Find(".anomaly-modal__title, #challenge-form").Length() > 0
}

func mojeek(doc *goquery.Document) (found []sandboxmcp.SearchResult, blocked bool) {
	some(doc.Find("ul.results-standard > li")).Each(func(_ int, s *goquery.Selection) {
		a := s.Find("h2 a, a.title").First()
		found = append(found, sandboxmcp.SearchResult{Title: text(a), URL: a.AttrOr("href", ""), Snippet: text(s.Find("p.s").First())})
	})
	return found, doc.Find("form[action*=captcha], .captcha").Length() > 0
}

func brave(doc *goquery.Document) (found []sandboxmcp.SearchResult, blocked bool) {
	some(doc.Find(`div.snippet[data-type="web"]`)).Each(func(_ int, s *goquery.Selection) {
		found = append(found, sandboxmcp.SearchResult{
			Title: text(s.Find(".title").First()), URL: s.Find("a[href]").First().AttrOr("href", ""),
			Snippet: text(s.Find(".snippet-description, .snippet-content, .description").First()),
		})
	})
	return found, doc.Find("#captcha, form[action*=captcha]").Length() > 0
}

func yandex(doc *goquery.Document) (found []sandboxmcp.SearchResult, blocked bool) {
	some(doc.Find("li.serp-item")).Each(func(_ int, s *goquery.Selection) {
		a := s.Find("a.OrganicTitle-Link, a.organic__url").First()
		found = append(found, sandboxmcp.SearchResult{Title: text(a), URL: a.AttrOr("href", ""), Snippet: text(s.Find(".OrganicTextContentSpan, .organic__content-wrapper").First())})
	})
	return found, doc.Find(".CheckboxCaptcha, form[action*=checkcaptcha]").Length() > 0
}

// some returns as many results of a page as are shown. Each is searched with all in it, and a page can have
// hundreds of them in each other.
func some(all *goquery.Selection) *goquery.Selection {
	return all.Slice(0, min(all.Length(), maxResults))
}

// maxFound is how many bytes of a text of a result are read.
const maxFound = 8 << 10

// text returns the text in a part of a page, and no more of it than a result can need: results that are in each
// other have the same text.
func text(s *goquery.Selection) string {
	var b strings.Builder
	for _, n := range s.Nodes {
		for d := range n.Descendants() {
			if d.Type == html.TextNode {
				b.WriteString(d.Data[:min(len(d.Data), maxFound-b.Len())])
			}
			if b.Len() >= maxFound {
				break
			}
		}
	}
	return b.String()
}

package web_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/web"
)

func TestSearchOfASearXNG(t *testing.T) {
	url, c := site(t, map[string]http.HandlerFunc{"/search": func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("q") != "two words" || r.FormValue("format") != "json" {
			t.Errorf("got the question %s", r.URL.RawQuery)
		}
		sends("application/json", `{"results":[
			{"title":"A\n  b\u001b","url":"https://a.test/1","content":"s"}, {"title":"Again","url":"https://a.test/1"},
			{"title":"JS","url":"javascript:f()"}, {"title":"C","url":"https://c.test/"}, {"title":"D","url":"https://d.test/"}]}`)(w, r)
	}})
	got, err := c.Search(t.Context(), sandboxmcp.SearchAsk{Query: " two\n words ", MaxResults: 2})
	want := sandboxmcp.SearchResults{
		Engine:  "searxng",
		Results: []sandboxmcp.SearchResult{{Title: "A b", URL: "https://a.test/1", Snippet: "s"}, {Title: "C", URL: "https://c.test/"}},
		Tried:   []sandboxmcp.TriedEngine{{Engine: "searxng", Status: "ok"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s: %v (-want +got):\n%s", url, err, diff)
	}
}

// TestNoAnswerIsNoEmptyAnswer: an engine that fails or blocks is never one without results.
func TestNoAnswerIsNoEmptyAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"Forbidden": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "HTTP status 403: its setting search.formats has to list json"},
		"TooMany":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, "blocked"},
		"HTML":      {sends("text/html", "<p>x"), "its answer is not JSON"},
		"Broken":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "HTTP status 500"},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := site(t, map[string]http.HandlerFunc{"/search": c.answer})
			_, err := client.Search(t.Context(), sandboxmcp.SearchAsk{Query: "x", Engine: "searxng"})
			failed := sandboxmcp.AsError(err)
			want := []sandboxmcp.TriedEngine{{Engine: "searxng", Status: c.want}}
			if diff := cmp.Diff(want, failed.Fields["tried"]); diff != "" || failed.Code != sandboxmcp.CodeSearchUnavailable {
				t.Errorf("%v: tried (-want +got):\n%s", err, diff)
			}
		})
	}
	_, client := site(t, map[string]http.HandlerFunc{"/search": sends("application/json", `{"results":[]}`)})
	got, err := client.Search(t.Context(), sandboxmcp.SearchAsk{Query: "x", Engine: "searxng"})
	if err != nil || got.Engine != "searxng" || len(got.Results) != 0 {
		t.Errorf("no results: got %+v, %v", got, err)
	}
}

// TestBlockedEnginesRest: an engine that has blocked us is not asked again for a while.
func TestBlockedEnginesRest(t *testing.T) {
	asked, now := 0, time.Now()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	c := web.New(web.Config{Allow: []string{s.Listener.Addr().String()}, SearXNG: s.URL, Now: func() time.Time { return now }})
	status := func() any {
		_, err := c.Search(t.Context(), sandboxmcp.SearchAsk{Query: "x", Engine: "searxng"})
		tried, _ := sandboxmcp.AsError(err).Fields["tried"].([]sandboxmcp.TriedEngine)
		return tried[0].Status
	}
	if first, second := status(), status(); first != "blocked" || second != "resting" || asked != 1 {
		t.Errorf("got %v, %v after %d questions", first, second, asked)
	}
	now = now.Add(11 * time.Minute)
	if again := status(); again != "blocked" || asked != 2 {
		t.Errorf("later: got %v after %d questions", again, asked)
	}
}

func TestBadSearches(t *testing.T) {
	c := web.New(web.Config{Engines: []string{"brave", "mojeek", "nothing"}})
	for _, ask := range []sandboxmcp.SearchAsk{{}, {Query: " \n"}, {Query: "x", MaxResults: -1}, {Query: "x", MaxResults: 51}, {Query: "x", Engine: "duckduckgo"}, {Query: string(make([]byte, 1001))}} {
		if _, err := c.Search(t.Context(), ask); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%+v: got %v, want invalid_argument", ask, err)
		}
	}
	if diff := cmp.Diff([]string{"brave", "mojeek"}, c.Engines()); diff != "" {
		t.Errorf("engines (-want +got):\n%s", diff)
	}
	own := web.New(web.Config{SearXNG: "http://s.test/", Engines: []string{"brave"}})
	if diff := cmp.Diff([]string{"searxng", "brave"}, own.Engines()); diff != "" {
		t.Errorf("engines with a SearXNG (-want +got):\n%s", diff)
	}
}

// TestTheHostOfTheOwnEngineIsNotTold: the caller learns that the operator's engine does not answer, and not where it is.
func TestTheHostOfTheOwnEngineIsNotTold(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "Search.INVALID", "bücher.invalid"} {
		c := web.New(web.Config{SearXNG: "http://" + host + ":8080"})
		_, err := c.Search(t.Context(), sandboxmcp.SearchAsk{Query: "q", Engine: "searxng"})
		e := sandboxmcp.AsError(err)
		tried, _ := e.Fields["tried"].([]sandboxmcp.TriedEngine)
		if len(tried) != 1 || !strings.HasPrefix(tried[0].Status, "searxng ") || strings.Contains(tried[0].Status+e.Message+e.Hint, "invalid") {
			t.Errorf("%s: got %v and %+v, want the failure of the engine without its host", host, err, tried)
		}
	}
}

// TestTheHostBehindTheOwnEngineIsNotTold: the engine may redirect to a host of the operator's network.
func TestTheHostBehindTheOwnEngineIsNotTold(t *testing.T) {
	for _, to := range []string{
		"http://127.6.5.4/search", "http://inner.invalid/search", "http://inner.invalid:22/search", "ftp://inner.invalid/", "http://localhost/", "http://[::ffff:127.6.5.4]/", "http://[0:0::1]/", "mailto:a@inner.invalid", "http:///inner",
	} {
		s := httptest.NewServer(http.RedirectHandler(to, http.StatusFound))
		t.Cleanup(s.Close)
		c := web.New(web.Config{Allow: []string{s.Listener.Addr().String()}, SearXNG: s.URL})
		_, err := c.Search(t.Context(), sandboxmcp.SearchAsk{Query: "q", Engine: "searxng"})
		tried, _ := sandboxmcp.AsError(err).Fields["tried"].([]sandboxmcp.TriedEngine)
		told := func(part string) bool { return strings.Contains(tried[0].Status, part) }
		if len(tried) != 1 || slices.ContainsFunc([]string{"127.", "::", "inner", "localhost"}, told) || strings.Count(tried[0].Status, "searxng") > 1 {
			t.Errorf("%s: got %v and %+v, want the failure without a host", to, err, tried)
		}
	}
}

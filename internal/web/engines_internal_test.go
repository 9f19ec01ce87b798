package web

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestPagesOfSearchEngines reads pages that were written by hand after the published form of
// those of the engines. No engine was asked for them.
func TestPagesOfSearchEngines(t *testing.T) {
	want := []sandboxmcp.SearchResult{{Title: "First result", URL: "https://a.test/x?y=1", Snippet: "words of it"}, {Title: "Second", URL: "https://b.test/", Snippet: ""}}
	readers := map[string]func(answer) ([]sandboxmcp.SearchResult, error){"duckduckgo": page(duckduckgo), "mojeek": page(mojeek), "brave": page(brave), "yandex": page(yandex)}
	for name, c := range map[string]struct{ results, blocked string }{
		"duckduckgo": {
			`<div class="result result--ad"><a class="result__a" href="https://ad.test">Ad</a></div>
			<div class="result"><h2><a class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.test%2Fx%3Fy%3D1&amp;rut=1">First <b>result</b></a></h2><a class="result__snippet">words of it</a></div>
			<div class="result"><a class="result__a" href="https://b.test/">Second</a></div>`,
			`<div class="anomaly-modal__title">Unfortunately, bots use it too.</div>`,
		},
		"mojeek": {
			`<ul class="results-standard"><li><a class="ob" href="https://a.test">a.test</a><h2><a class="title" href="https://a.test/x?y=1">First result</a></h2><p class="s">words of it</p></li>
			<li><h2><a href="https://b.test/">Second</a></h2></li></ul>`,
			`<form action="/captcha"></form>`,
		},
		"brave": {
			`<div class="snippet" data-type="ad"><a href="https://ad.test">x</a></div>
			<div class="snippet" data-type="web"><a href="https://a.test/x?y=1"><div class="title">First result</div></a><div class="snippet-description">words of it</div></div>
			<div class="snippet" data-type="web"><a href="https://b.test/"><div class="title">Second</div></a></div>`,
			`<div id="captcha"></div>`,
		},
		"yandex": {
			`<ul><li class="serp-item"><a class="OrganicTitle-Link" href="https://a.test/x?y=1">First result</a><span class="OrganicTextContentSpan">words of it</span></li>
			<li class="serp-item"><a class="OrganicTitle-Link" href="https://b.test/">Second</a></li></ul>`,
			`<form action="/checkcaptcha?x=1"></form>`,
		},
	} {
		read := readers[name]
		got, err := read(answer{status: 200, body: []byte("<html><body>" + c.results)})
		if diff := cmp.Diff(want, tidy(got)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		for status, body := range map[int]string{200: c.blocked, 202: c.results, 403: "", 429: ""} {
			if _, err := read(answer{status: status, body: []byte(body)}); statusOf(err) != "blocked" {
				t.Errorf("%s, status %d: got %v, want blocked", name, status, err)
			}
		}
		if got, err := read(answer{status: 200, body: []byte("<p>no results")}); len(got) != 0 || err != nil {
			t.Errorf("%s: got %v, %v for a page without results", name, got, err)
		}
	}
}

// TestResultsInEachOther: each result has the text of all in it, and is searched for it.
func TestResultsInEachOther(t *testing.T) {
	const most = 100 << 20
	body := strings.Repeat(`<div class="result">`, 400) + `<a class="result__a" href="https://a.example/">` + strings.Repeat("word ", 200_000) + `</a>`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found, err := page(duckduckgo)(answer{status: http.StatusOK, body: []byte(body)})
	runtime.ReadMemStats(&after)
	if err != nil || len(found) != maxResults || !strings.HasPrefix(found[0].Title, "word word") {
		t.Errorf("got %d results, %v, want %d", len(found), err, maxResults)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("it took %d MiB of memory, want at most %d", took>>20, most>>20)
	}
}

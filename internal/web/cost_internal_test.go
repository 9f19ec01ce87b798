package web

import (
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestCostOfPages: a page of a few kilobytes or one that nests deeply takes no more memory
// than a large one, and what people write is markdown.
func TestCostOfPages(t *testing.T) {
	at := &url.URL{Scheme: "https", Host: "name.example"}
	for name, page := range map[string]string{
		"span":    "<table><tr><td colspan=3000 rowspan=3000>a<td>b",
		"huge":    "<table><tr><td colspan=99999999999999999999 rowspan=3000>a<td>b",
		"covered": "<table>" + strings.Repeat("<tr><td rowspan=2000>a", 2000),
		"ragged":  "<table><tr>" + strings.Repeat("<td>", 4000) + strings.Repeat("<tr><td>a", 4000),
		"list":    strings.Repeat("<ul><li>", 200) + "<pre>" + strings.Repeat("x\n", 5_000),
		"quote":   strings.Repeat("<blockquote>", 400) + "<pre>" + strings.Repeat("x\n", 50_000),
		"texts":   "<p>" + strings.Repeat("some words<!-- -->", 15_000),
		"base":    "<base href='http://a.example/" + strings.Repeat("a/", 50_000) + "'>" + strings.Repeat("<a href=../x>y</a>", 14_000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, _, err := markdown([]byte(page), at); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 100 {
			t.Errorf("%s: took %d MiB for %d bytes, want at most 100", name, mib, len(page))
		}
	}
	for page, want := range map[string]string{
		"<table><tr><th colspan=2>a<tr><td rowspan=2>b<td>c<tr><td>d</table>":                                                 "| a |  |\n|---|---|\n| b | c |\n|  | d |\n",
		"<ul><li>a<ul><li>b<ul><li>c<ul><li>d</ul></ul></ul></ul>":                                                            "- a\n\n  - b\n\n    - c\n\n      - d\n",
		"<table><tr><td colspan=60000>a<td>b<tr><td>c<td>d</table>":                                                           "|  |  |\n|---|---|\n| a | b |\n| c | d |\n",
		strings.Repeat("<div>", 40) + "<p>" + strings.Repeat("word ", 10_000) + "<b>x</b></p>" + strings.Repeat("</div>", 40): strings.Repeat("word ", 10_000) + "**x**\n",
	} {
		if _, got, err := markdown([]byte(page), at); err != nil || got != want {
			t.Errorf("%.60s: got %.200q, %v; want %.200q", page, got, err, want)
		}
	}
}

// TestAPageBecomesNoLargeTree: elements that are not closed are made again in each paragraph, so
// seven bytes of a page can become hundreds of nodes. Its text is returned all the same.
func TestAPageBecomesNoLargeTree(t *testing.T) {
	var b strings.Builder
	b.WriteString("<title>a\tb</title><p>")
	for i := range 400 {
		fmt.Fprintf(&b, "<b id=%d>", i)
	}
	b.WriteString("</p>" + strings.Repeat("<p>word", 40_000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	title, content, err := markdown([]byte(b.String()), &url.URL{Scheme: "https", Host: "a.example"})
	runtime.ReadMemStats(&after)
	if err != nil || title != "a b" || strings.Count(content, "word\n") != 40_000 {
		t.Errorf("got %q, %d words, %v, want the page's text", title, strings.Count(content, "word\n"), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 2*maxTree {
		t.Errorf("it took %d MiB of memory, want at most %d", took>>20, 2*maxTree>>20)
	}
}

// TestATreeIsGivenUpInTime: an end tag without an element looks at each open element, which takes no
// memory. A page of 4 MB took 20 s.
func TestATreeIsGivenUpInTime(t *testing.T) {
	page := []byte(strings.Repeat("<y>", 400) + strings.Repeat("</x>", 10_000) + "word")
	began := time.Unix(0, 0)
	now := began
	if _, err := parseBy(page, func() time.Time { return now }); err != nil {
		t.Errorf("got %v from a clock that stands still, want no error", err)
	}
	if _, err := parseBy(page, func() time.Time { now = now.Add(maxParse / 4); return now }); !errors.Is(err, errTree) {
		t.Errorf("got %v after %s, want %v", err, now.Sub(began), errTree)
	}
	if now.Sub(began) > 2*maxParse {
		t.Errorf("it took %s, want at most %s", now.Sub(began), 2*maxParse)
	}
}

// TestAttributesAreNotCopiedWithoutEnd: each further <html> or <body> copies all attributes of the
// first.
func TestAttributesAreNotCopiedWithoutEnd(t *testing.T) {
	for _, tag := range []string{"html", "BODY"} {
		var b strings.Builder
		b.WriteString("<" + tag)
		for i := range 30_000 {
			fmt.Fprintf(&b, " a%d", i)
		}
		b.WriteString(">word" + strings.Repeat("<"+tag+" z>", 2000))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, content, err := markdown([]byte(b.String()), &url.URL{Scheme: "https", Host: "a.example"})
		runtime.ReadMemStats(&after)
		if err != nil || strings.TrimSpace(content) != "word" {
			t.Errorf("%s: got %q, %v, want the page's text", tag, content, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 2*maxTree {
			t.Errorf("%s: it took %d MiB of memory, want at most %d", tag, took>>20, 2*maxTree>>20)
		}
	}
}

// TestLinksBecomeNoLargeTree: a page can give each of its links a base of a megabyte, as its host,
// its path or its query.
func TestLinksBecomeNoLargeTree(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	for base, link := range map[string]string{"http://" + long + "/": "x", "/" + long + "/": "x", "/?" + long: "#x"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, content, err := markdown([]byte("<base href='"+base+"'>"+strings.Repeat("<a href='"+link+"'>word</a> ", 1000)), &url.URL{Scheme: "https", Host: "a.example"})
		runtime.ReadMemStats(&after)
		if err != nil || strings.Count(content, "word") != 1000 {
			t.Errorf("%.10s: got %d words, %v, want the page's text", base, strings.Count(content, "word"), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > maxTree {
			t.Errorf("%.10s: it took %d MiB of memory, want at most %d", base, took>>20, maxTree>>20)
		}
	}
}

// TestTitlesOfALargeTree: a page whose text is returned without a tree can have any number of titles.
func TestTitlesOfALargeTree(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	title, _ := flat([]byte("<title>one</title>" + strings.Repeat("<title>more of it</title>", 4000)))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; title != "one" || took > 16<<20 {
		t.Errorf("got %.20q, %d MiB, want the first title and at most 16 MiB", title, took>>20)
	}
}

func TestTitlesAreBounded(t *testing.T) {
	title, _, err := markdown([]byte("<title>"+strings.Repeat("é", 100_000)+"</title>"), &url.URL{Scheme: "https", Host: "a.example"})
	if got := utf8.RuneCountInString(title); err != nil || got != maxTitle {
		t.Errorf("got %d characters, %v, want %d", got, err, maxTitle)
	}
}

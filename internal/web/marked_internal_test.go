package web

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

func TestMarked(t *testing.T) {
	text := strings.Repeat("some words of a page ", 20)
	for page, want := range map[string]string{
		"<nav>home</nav><article>" + text + "</article>":                    "article",
		"<main><p>" + text + "</main>":                                      "main",
		"<main>more<article>" + text + "</article></main>":                  "article",
		"<main><article>" + text + "</article><article>" + text + "</main>": "main",
		"<article>" + text + "</article><article>" + text + "</article>":    "",
		"<p>" + text: "",
		"<article>" + text + "</article><p>" + text:                                  "",
		"<article>" + text + "<aside>x</aside></article>":                            "",
		"<article>" + text + "<form>x</form></article>":                              "",
		"<article>" + text + "<a href=/>" + text + "</a></article>":                  "",
		"<article>" + text + text + text + "<a href=/>" + text + "</a></article>":    "article",
		"<article>" + text + "</article><footer>" + text[:len(text)/2] + "</footer>": "article",
	} {
		doc, err := html.Parse(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if n := marked(doc, words(find(doc, atom.Body))); n != nil {
			got = n.Data
		}
		if got != want {
			t.Errorf("%.40s…: got %q, want %q", page, got, want)
		}
	}
}

package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// article returns a page of about n bytes as newspapers and handbooks have them.
func article(n int) string {
	const part = `<h2 id="s">A heading of a part</h2><p class="text">Some words of an article, with <a href="/other/page?x=1">a link</a>, <b>bold text</b> and <code>code</code>. ` +
		`They go on for a while, so that the paragraph counts as a part of the article, and not as a menu.</p><ul><li>one item of a list</li><li>another <em>item</em></li></ul>`
	return whole(strings.Repeat(part, n/len(part)))
}

// prose returns a page of about n bytes with long paragraphs.
func prose(n int) string {
	part := `<p class="text">` + strings.Repeat("Some words of an article, which go on for a while, so that the paragraph counts. ", 8) + `See <a href="/other">the other page</a>.</p>` + "\n"
	return whole(strings.Repeat(part, n/len(part)))
}

func whole(article string) string {
	return `<!doctype html><html><head><title>A page</title><style>p{color:red}</style></head><body><nav><a href="/">home</a></nav><article>` + article + `</article></body></html>`
}

// BenchmarkFetch fetches pages of 1 MB from this machine. The first has too many elements for
// markdown.
func BenchmarkFetch(b *testing.B) {
	for name, page := range map[string]string{"dense": article(1 << 20), "prose": prose(1 << 20)} {
		b.Run(name, func(b *testing.B) {
			url, c := site(b, map[string]http.HandlerFunc{"/": sends("text/html; charset=utf-8", page)})
			b.ReportAllocs()
			for b.Loop() {
				p, err := c.Fetch(b.Context(), sandboxmcp.PageAsk{URL: url}, noPDF)
				if err != nil || p.TotalLength < 100_000 {
					b.Fatalf("got %d characters, %v", p.TotalLength, err)
				}
			}
		})
	}
}

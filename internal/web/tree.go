package web

import (
	"bytes"
	"errors"
	"io"
	"runtime/metrics"
	"strings"
	"time"

	"golang.org/x/net/html"
)

// maxTree is how many bytes of memory the tree of a page may take while it is made. A page of a
// few kilobytes can become millions of nodes: an element such as <b> that is not closed is made
// again in each paragraph after it, and a page can have hundreds of them.
const maxTree = 256 << 20

// maxParse is how long the making of a tree may take. An end tag without an element takes a look at
// each element that is open, and a page can have a million of them.
const maxParse = 2 * time.Second

var errTree = errors.New("the tree of the page is too large")

// parse returns the tree of a page. It fails with errTree if that takes too much memory or time. It
// measures the memory that the whole process takes meanwhile, so it may fail early.
func parse(page []byte) (*html.Node, error) { return parseBy(page, time.Now) }

// parseBy is parse by a clock.
func parseBy(page []byte, now func() time.Time) (*html.Node, error) {
	r := &measured{rest: page, now: now, until: now().Add(maxParse)}
	r.began = r.taken()
	return html.Parse(r)
}

// measured reads a page in small pieces, and fails when too much memory or time was taken.
type measured struct {
	rest  []byte
	began uint64
	now   func() time.Time
	until time.Time
	read  [1]metrics.Sample
}

func (m *measured) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		return 0, io.EOF
	}
	if m.taken()-m.began > maxTree || m.now().After(m.until) {
		return 0, errTree
	}
	const piece = 4 << 10
	next := m.rest[:min(len(p), piece, len(m.rest))]
	n := copy(p, next[:beforeAgain(next)])
	m.rest = m.rest[n:]
	return n, nil
}

// beforeAgain returns how many bytes of a piece come before its first <html or <body, or all. The one at its
// beginning does not count. Each such tag copies all attributes of the element, of which a page can give it a
// megabyte, so a piece has one of them.
func beforeAgain(piece []byte) int {
	for i := 1; i < len(piece); i++ {
		next := bytes.IndexByte(piece[i:], '<')
		if next < 0 {
			break
		}
		i += next
		if name := piece[i+1 : min(i+5, len(piece))]; bytes.EqualFold(name, []byte("html")) || bytes.EqualFold(name, []byte("body")) {
			return i
		}
	}
	return len(piece)
}

// taken returns how many bytes the process has ever allocated.
func (m *measured) taken() uint64 {
	m.read[0].Name = "/gc/heap/allocs:bytes"
	metrics.Read(m.read[:])
	if m.read[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return m.read[0].Value.Uint64()
}

// flat returns the title and the text of a page without making its tree. It is for pages that
// parse refuses.
func flat(page []byte) (title, content string) {
	var b strings.Builder
	z, at := html.NewTokenizer(bytes.NewReader(page)), ""
	for {
		switch z.Next() {
		case html.ErrorToken:
			if !errors.Is(z.Err(), io.EOF) {
				b.WriteString("…\n")
			}
			return title, b.String()
		case html.StartTagToken:
			name, _ := z.TagName()
			at = string(name)
		case html.EndTagToken:
			at = ""
		case html.TextToken:
			text := strings.TrimSpace(string(z.Text()))
			switch {
			case text == "", at == "script", at == "style", at == "noscript", at == "iframe", at == "textarea":
			case at == "title":
				if title == "" { // the first one counts
					title = text
				}
			default:
				b.WriteString(text + "\n")
			}
		case html.SelfClosingTagToken, html.CommentToken, html.DoctypeToken:
		}
	}
}

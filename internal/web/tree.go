package web

import (
	"bytes"
	"errors"
	"io"
	"runtime/metrics"
	"strings"

	"golang.org/x/net/html"
)

// maxTree is how many bytes of memory the tree of a page may take while it is made. A page of a
// few kilobytes can become millions of nodes: an element such as <b> that is not closed is made
// again in each paragraph after it, and a page can have hundreds of them.
const maxTree = 256 << 20

var errTree = errors.New("the tree of the page is too large")

// parse returns the tree of a page. It fails with errTree if that takes too much memory. It
// measures the memory that the whole process takes meanwhile, so it may fail early.
func parse(page []byte) (*html.Node, error) {
	r := &measured{rest: bytes.NewReader(page)}
	r.began = r.taken()
	return html.Parse(r)
}

// measured reads a page in small pieces, and fails when too much memory was taken.
type measured struct {
	rest  *bytes.Reader
	began uint64
	read  [1]metrics.Sample
}

func (m *measured) Read(p []byte) (int, error) {
	if m.taken()-m.began > maxTree {
		return 0, errTree
	}
	const piece = 4 << 10
	return m.rest.Read(p[:min(len(p), piece)])
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

package web

import (
	"bytes"
	"strings"
	"sync"

	"github.com/JohannesKaufmann/dom"
	"github.com/JohannesKaufmann/html-to-markdown/v2/collapse"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// toMarkdown does not escape the characters of text that mean something in markdown: a model
// needs the text, and escaping takes quadratic time.
var toMarkdown = sync.OnceValue(func() *converter.Converter {
	return converter.NewConverter(
		converter.WithEscapeMode(converter.EscapeModeDisabled),
		converter.WithPlugins(linear{}, commonmark.NewCommonmarkPlugin(), table.NewTablePlugin(
			table.WithNewlineBehavior(table.NewlineBehaviorPreserve), table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal))),
	)
})

// linear stands for the converter's plugin "base", which joins adjacent texts in quadratic time and
// decodes each character of the result to remove empty lines.
type linear struct{}

// Name returns the name under which the plugin commonmark looks for it.
func (linear) Name() string { return "base" }

// Init implements converter.Plugin.
func (linear) Init(c *converter.Converter) error {
	c.Register.PreRenderer(func(_ converter.Context, doc *html.Node) { prune(doc) }, converter.PriorityEarly)
	c.Register.PreRenderer(func(ctx converter.Context, doc *html.Node) {
		collapse.Collapse(doc, &collapse.DomFuncs{IsBlockNode: func(n *html.Node) bool {
			name := dom.NodeName(n)
			if kind, known := ctx.GetTagType(name); known {
				return kind == converter.TagTypeBlock
			}
			return dom.NameIsBlockNode(name)
		}})
	}, converter.PriorityLate)
	c.Register.TextTransformer(func(_ converter.Context, text string) string { return angles.Replace(text) }, converter.PriorityStandard)
	c.Register.PostRenderer(func(_ converter.Context, out []byte) []byte { return trimLines(out) }, converter.PriorityStandard)
	return nil
}

var angles = strings.NewReplacer("<", "&lt;", ">", "&gt;")

// prune removes elements without text from a node, and joins texts that are adjacent then.
func prune(n *html.Node) {
	for d := n.FirstChild; d != nil; {
		next := d.NextSibling
		if d.Type == html.CommentNode || d.Type == html.ElementNode && (unread[d.DataAtom] || d.DataAtom == atom.Head || d.DataAtom == atom.Link || d.DataAtom == atom.Meta) {
			n.RemoveChild(d)
		}
		d = next
	}
	for d := n.FirstChild; d != nil; {
		if d.Type != html.TextNode {
			prune(d)
			d = d.NextSibling
		} else if d = d.NextSibling; d != nil && d.Type == html.TextNode {
			d = join(d.PrevSibling)
		}
	}
}

// join adds to a text those that follow it, up to something that stays, which it returns.
func join(text *html.Node) *html.Node {
	var b strings.Builder
	b.WriteString(text.Data)
	next := text.NextSibling
	for ; next != nil && next.Type == html.TextNode; next = text.NextSibling {
		b.WriteString(next.Data)
		text.Parent.RemoveChild(next)
	}
	text.Data = b.String()
	return next
}

// trimLines leaves at most one empty line between two others, and no spaces before it. The lines
// of code blocks are not ended by line ends yet.
func trimLines(text []byte) []byte {
	text = bytes.TrimSpace(text)
	out := make([]byte, 0, len(text))
	empty := 0
	for line := range bytes.Lines(text) {
		if len(bytes.TrimRight(line, " \n")) == 0 {
			empty++
			continue
		}
		if empty > 0 {
			out = append(bytes.TrimRight(out, " \n"), '\n', '\n')
			empty = 0
		}
		out = append(out, line...)
	}
	return out
}

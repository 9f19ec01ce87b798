package web

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	readability "codeberg.org/readeck/go-readability/v2"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"

	"github.com/sandboxmcp/sandboxmcp"
)

// defaultLength is how many characters of a page are returned if the caller says nothing.
const defaultLength = 8000

// Fetch returns a page as markdown, or a part of it. An error status of the web server is
// no failure. readPDF returns the text of a PDF document.
func (c *Client) Fetch(ctx context.Context, ask sandboxmcp.PageAsk, readPDF func(context.Context, []byte) (string, error)) (sandboxmcp.Page, error) {
	u, err := ParseURL(ask.URL)
	if err != nil {
		return sandboxmcp.Page{}, err
	}
	if ask.MaxLength < 0 || ask.Offset < 0 {
		return sandboxmcp.Page{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "max_length and offset may not be below 0")
	}
	a, err := c.get(ctx, u, "text/html,application/xhtml+xml,text/plain;q=0.9,application/pdf;q=0.8,*/*;q=0.5")
	if err != nil {
		return sandboxmcp.Page{}, err
	}
	var title, content string
	if kind, _ := a.kind(); kind == "application/pdf" {
		content, err = readPDF(ctx, a.body)
		content = printable(content)
	} else {
		title, content, err = c.read(ctx, a)
	}
	if err != nil {
		return sandboxmcp.Page{}, Failure(ctx, u, err)
	}
	p := sandboxmcp.Page{URL: a.url.String(), Title: title, Status: a.status, TotalLength: utf8.RuneCountInString(content)}
	length := ask.MaxLength
	if length == 0 {
		length = defaultLength
	}
	p.Content = part(content, ask.Offset, length)
	p.Truncated = ask.Offset+utf8.RuneCountInString(p.Content) < p.TotalLength
	return p, nil
}

// maxRendered is how many characters of a page a browser's answer has.
const maxRendered = 50_000

// Rendered returns the title of a page that a browser has built, and its content as
// markdown, of which it leaves out what is beyond a bound.
func (c *Client) Rendered(ctx context.Context, at *url.URL, page []byte) (title, content string, truncated bool, err error) {
	leave, err := c.take(ctx, at)
	if err != nil {
		return "", "", false, err
	}
	defer leave()
	if title, content, err = markdown(page, at); err != nil {
		return "", "", false, err
	}
	short := part(content, 0, maxRendered)
	return title, short, len(short) < len(content), nil
}

// take waits for a turn to convert a page. The caller calls leave.
func (c *Client) take(ctx context.Context, at *url.URL) (leave func(), err error) {
	select {
	case c.turns <- struct{}{}:
		return func() { <-c.turns }, nil
	case <-ctx.Done():
		return nil, Failure(ctx, at, context.Cause(ctx))
	}
}

// part returns length characters of text from the character at offset.
func part(text string, offset, length int) string {
	start, n := len(text), 0
	for i := range text {
		if n == offset {
			start = i
		}
		if n-offset == length {
			return text[start:i]
		}
		n++
	}
	return text[start:]
}

// kind returns the media type of an answer, and that with its parameters.
func (a answer) kind() (kind, declared string) {
	declared = a.head.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(declared)
	if err != nil {
		kind = ""
	}
	if kind == "" || kind == "application/octet-stream" {
		declared = http.DetectContentType(a.body)
		kind, _, _ = strings.Cut(declared, ";")
	}
	return kind, declared
}

// read returns the title and the content of an answer.
func (c *Client) read(ctx context.Context, a answer) (title, content string, err error) {
	leave, err := c.take(ctx, a.url)
	if err != nil {
		return "", "", err
	}
	defer leave()
	if coding := a.head.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") { // gzip, the only one that was asked for, is decoded already
		return "", "", sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "%s sent the page in the encoding %s, which was not asked for", a.url.Hostname(), sandboxmcp.Quote(coding)).
			With("status", a.status).WithHint("fetch it in a program that may reach its domain")
	}
	kind, declared := a.kind()
	page := kind == "text/html" || kind == "application/xhtml+xml"
	text := page || strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml") || strings.HasSuffix(kind, "javascript") || strings.HasSuffix(kind, "yaml")
	if !text {
		return "", "", sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "%s is %s, which is no text", a.url.Hostname(), sandboxmcp.Quote(kind)).
			With("status", a.status).WithHint("fetch it in a program that may reach its domain")
	}
	decoded := a.body
	if encoding, name, _ := charset.DetermineEncoding(a.body, declared); name != "utf-8" || !utf8.Valid(a.body) {
		if b, failed := encoding.NewDecoder().Bytes(a.body); failed == nil {
			decoded = b
		}
	}
	if !page {
		return "", printable(string(decoded)), nil
	}
	return markdown(decoded, a.url)
}

// printable removes control characters other than tabs and line ends.
func printable(s string) string {
	if isPrintable(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(s, "\r\n", "\n"), "\uFFFD"))
}

// isPrintable reports whether printable would change nothing. Most pages are so, and this takes a
// fraction of the time.
func isPrintable(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= ' ' && c != 0x7f && c != 0xc2, c == '\n', c == '\t':
		case c == 0xc2 && i+1 < len(s) && s[i+1] >= 0xa0: // begins U+0080 to U+00BF, of which the first half are control characters
		default:
			return false
		}
	}
	return utf8.ValidString(s)
}

// markdown returns the title of an HTML page, and its article as markdown. If the page has
// no article, that is all of its body.
func markdown(page []byte, at *url.URL) (title, content string, err error) {
	refuse := func(err error) (string, string, error) {
		return "", "", sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "the page of %s cannot be read", at.Hostname()).WithCause(err)
	}
	doc, err := parse(page)
	if errors.Is(err, errTree) {
		title, content = flat(page)
		return titleOf(title), printable(content), nil
	}
	if err != nil {
		return refuse(err)
	}
	title = titleOf(textOf(find(doc, atom.Title)))
	clean(doc, baseOf(doc, at))
	whole := find(doc, atom.Body)
	if !affordable(doc) {
		return title, printable(lines(whole)), nil
	}
	all := words(whole)
	chosen := marked(doc, all)
	if chosen == nil {
		chosen = whole
		parser := readability.NewParser()
		if a, failed := parser.ParseDocument(doc, at); failed == nil && a.Node != nil && words(a.Node)*3 >= all {
			chosen = a.Node
		}
	}
	if chosen == nil {
		return title, "", nil
	}
	out, err := toMarkdown().ConvertNode(chosen)
	if err != nil {
		return refuse(err)
	}
	return title, printable(strings.TrimSpace(string(out))) + "\n", nil
}

// marked returns the element that a page marks as its only article, or as its main content. It returns nil
// if that has less than two thirds of the page's words, if more than a quarter of its words
// are links, or if it has parts that are no article. Readability, which takes longer, would
// choose the same.
func marked(doc *html.Node, all int) *html.Node {
	n := only(doc, atom.Article)
	if n == nil {
		n = only(doc, atom.Main)
	}
	size := words(n)
	if n == nil || size*3 < all*2 {
		return nil
	}
	links := 0
	for d := range n.Descendants() {
		switch d.DataAtom { //nolint:exhaustive // the others say nothing
		case atom.A:
			links += words(d)
		case atom.Nav, atom.Aside, atom.Footer, atom.Form:
			return nil
		}
	}
	if links*4 > size {
		return nil
	}
	return n
}

// only returns the one element of a kind. It returns nil if there is none or another.
func only(n *html.Node, kind atom.Atom) (found *html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.DataAtom == kind {
			if found != nil {
				return nil
			}
			found = d
		}
	}
	return found
}

// maxTitle is how many characters of a title are returned.
const maxTitle = 500

// titleOf returns a title in one line.
func titleOf(text string) string {
	return part(printable(strings.Join(strings.Fields(text), " ")), 0, maxTitle)
}

// lines returns the text in a node, with a line for each piece.
func lines(n *html.Node) string {
	var b strings.Builder
	if n == nil {
		return ""
	}
	for d := range n.Descendants() {
		if text := strings.TrimSpace(d.Data); d.Type == html.TextNode && text != "" {
			b.WriteString(text)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// find returns the first element of a kind.
func find(n *html.Node, kind atom.Atom) *html.Node {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.DataAtom == kind {
			return d
		}
	}
	return nil
}

// words returns how many words the text in a node has.
func words(n *html.Node) (all int) {
	if n == nil {
		return 0
	}
	if n.Type == html.TextNode {
		before := uint8(0)
		for i := range len(n.Data) {
			now := inWord[n.Data[i]]
			all += int(now &^ before)
			before = now
		}
	}
	for d := n.FirstChild; d != nil; d = d.NextSibling {
		all += words(d)
	}
	return all
}

// inWord is 1 for each byte that is no space.
var inWord = func() (t [256]uint8) {
	for b := range t {
		if b != ' ' && (b < '\t' || b > '\r') {
			t[b] = 1
		}
	}
	return t
}()

// textOf returns the text in a node.
func textOf(n *html.Node) string {
	if n == nil {
		return ""
	}
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// baseOf returns the URL that a page's links are relative to.
func baseOf(doc *html.Node, at *url.URL) *url.URL {
	if b := find(doc, atom.Base); b != nil {
		if u, err := at.Parse(attribute(b, "href")); err == nil {
			return u
		}
	}
	return at
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// unread are the elements whose content is not text for a reader.
var unread = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Svg: true, atom.Iframe: true, atom.Object: true, atom.Embed: true,
	atom.Canvas: true, atom.Audio: true, atom.Video: true, atom.Input: true, atom.Select: true, atom.Textarea: true, atom.Button: true,
}

// kept are the attributes that matter for finding and writing an article. Others, such as
// srcset, take time for nothing.
var kept = map[string]bool{
	"href": true, "src": true, "alt": true, "title": true, "class": true, "id": true, "role": true, "rel": true, "itemprop": true, "itemtype": true,
	"name": true, "property": true, "content": true, "start": true, "type": true, "align": true, "colspan": true, "rowspan": true,
}

// clean removes what a reader would not see, and makes links absolute.
func clean(doc *html.Node, base *url.URL) {
	var gone []*html.Node
	budget, before := maxLinks, len(base.String()) // a link may get all of it: its host, its path, or its query
	for n := range doc.Descendants() {
		if n.Type == html.CommentNode || n.Type == html.ElementNode && (unread[n.DataAtom] || hidden(n)) {
			gone = append(gone, n)
			continue
		}
		n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool { return !kept[a.Key] })
		for i, a := range n.Attr {
			if a.Key == "href" || a.Key == "src" {
				n.Attr[i].Val = ""
				if budget > 0 {
					n.Attr[i].Val = absolute(base, a.Val)
					budget -= before + len(a.Val)
				}
			}
		}
		n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool { return (a.Key == "href" || a.Key == "src") && a.Val == "" })
		if n.DataAtom == atom.A && attribute(n, "href") == "" {
			n.DataAtom, n.Data = atom.Span, "span"
		}
	}
	for _, n := range gone {
		if n.Parent != nil {
			n.Parent.RemoveChild(n)
		}
	}
}

// maxLinks is how many bytes of links are made absolute. Further ones are removed, because a
// page can give all of them a base of any length.
const maxLinks = 8 << 20

func hidden(n *html.Node) bool {
	for _, a := range n.Attr {
		switch a.Key {
		case "hidden":
			return true
		case "style":
			style := strings.ReplaceAll(strings.ToLower(a.Val), " ", "")
			if strings.Contains(style, "display:none") || strings.Contains(style, "visibility:hidden") {
				return true
			}
		}
	}
	return false
}

// absolute returns a link as an absolute URL; "" if it leads to no web page.
func absolute(base *url.URL, link string) string {
	u, err := base.Parse(strings.TrimSpace(link))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto" {
		return ""
	}
	return u.String()
}

package engine_test

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/pdf"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// document returns a PDF document of one page with these objects besides: its content is object 4.
func document(objects ...string) string {
	all := append([]string{
		"<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
	}, objects...)
	all = append(all, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
	var b strings.Builder
	b.WriteString("%PDF-1.4\n")
	var at []int
	for i, o := range all {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	table := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(all)+1)
	for _, o := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(all)+1, table)
	return b.String()
}

func content(text string) string { return stream("", []byte("BT /F 12 Tf 50 700 Td "+text+" ET")) }

func stream(filter string, data []byte) string {
	return fmt.Sprintf("<< /Length %d %s >>\nstream\n%s\nendstream", len(data), filter, data)
}

// squeezed compresses n copies of a block, twice. Only two copies pass through the compressor: of a text that
// repeats itself, the compressed form does, too. It has no checksum, for which Poppler does not look.
func squeezed(block []byte, n int) []byte {
	var part, once, twice bytes.Buffer
	f, _ := flate.NewWriter(&part, flate.BestCompression)
	once.Write([]byte{0x78, 0xda}) // the head of zlib
	for range 2 {
		once.Write(part.Bytes())
		part.Reset()
		_, _ = f.Write(block)
		_ = f.Flush()
	}
	for range n - 1 {
		once.Write(part.Bytes())
	}
	part.Reset()
	_ = f.Close()
	once.Write(part.Bytes())
	z, _ := zlib.NewWriterLevel(&twice, zlib.BestCompression)
	_, _ = z.Write(once.Bytes())
	_ = z.Close()
	return twice.Bytes()
}

// openPDF opens an engine whose fetch_webpage may reach a server with these documents.
func openPDF(t *testing.T, documents map[string]string) (*engine.Engine, string) {
	t.Helper()
	_, err := pdf.Find()
	testkit.Need(t, "pdf", err == nil, "pdftotext is not installed")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = w.Write([]byte(documents[r.URL.Path]))
	}))
	t.Cleanup(s.Close)
	return openRealOn(t, process.Config{}, func(c *engine.Config) { c.WebAllow = []string{strings.TrimPrefix(s.URL, "http://")} }), s.URL
}

// TestPDFText: fetch_webpage returns the text of a document, in parts as of a page.
func TestPDFText(t *testing.T) {
	e, url := openPDF(t, map[string]string{"/a.pdf": document(content("(Hello from a document) Tj 0 -20 Td (second line) Tj"))})
	p, err := e.FetchPage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.PageAsk{URL: url + "/a.pdf"})
	if err != nil || p.Content != "Hello from a document\nsecond line\n\n" || p.Status != http.StatusOK {
		t.Errorf("got %+v, %v, want the document's two lines", p, err)
	}
	p, err = e.FetchPage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.PageAsk{URL: url + "/a.pdf", Offset: 6, MaxLength: 4})
	if err != nil || p.Content != "from" || !p.Truncated {
		t.Errorf("a part: got %+v, %v, want %q", p, err, "from")
	}
}

// TestAttackPDFBomb: a small document that unpacks to gigabytes, or never ends, is an error. The
// server lives and reads the next one.
func TestAttackPDFBomb(t *testing.T) {
	bombs := map[string]string{
		"/time":   document(stream("/Filter [/FlateDecode /FlateDecode]", squeezed(bytes.Repeat([]byte("0 0 m "), 1<<15), 1<<14))),
		"/memory": document(stream("/Filter [/FlateDecode /FlateDecode]", squeezed(append([]byte("("), bytes.Repeat([]byte("q "), 1<<19)...), 600))),
		"/text":   document(stream("/Filter [/FlateDecode /FlateDecode]", squeezed([]byte("BT /F 12 Tf 50 700 Td (text text text text) Tj ET\n"), 1<<20))),
		"/loop":   strings.Replace(document(content("(x) Tj")), "/Kids [3 0 R] /Count 1", "/Kids [2 0 R] /Count 9", 1),
		"/cut":    document(content("(x) Tj"))[:200],
		"/none":   "%PDF-1.4\n",
	}
	good := document(content("(good) Tj"))
	bombs["/good"] = good
	e, url := openPDF(t, bombs)
	limit := func(seconds float64) { // the namespace's limits are upper bounds of those of a document
		if _, err := e.SetLimits(t.Context(), sandboxmcp.Caller{}, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{TimeoutSeconds: seconds}}); err != nil {
			t.Fatal(err)
		}
	}
	for path := range bombs {
		if path == "/good" {
			continue
		}
		limit(2)
		if path == "/memory" {
			limit(60) // more than a document has: the memory ends first
		}
		p, err := e.FetchPage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.PageAsk{URL: url + path})
		t.Logf("%s: %d bytes: %d characters, %v", path, len(bombs[path]), p.TotalLength, err)
		if err != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeFetchFailed || err == nil && p.TotalLength > 4<<20 {
			t.Errorf("%s: got %d characters and %v, want at most 4 MiB or fetch_failed", path, p.TotalLength, err)
		}
		if why := map[string]string{"/time": "more than 2s", "/memory": "more time or memory than a document may"}[path]; path != "/text" && (err == nil || !strings.HasSuffix(sandboxmcp.AsError(err).Message, why)) {
			t.Errorf("%s: got %v, want it refused: %s", path, err, why)
		}
		if err == nil && (path == "/cut" || path == "/none") {
			t.Errorf("%s: got %q, want an error", path, p.Content)
		}
	}
	limit(60)
	if p, err := e.FetchPage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.PageAsk{URL: url + "/good"}); err != nil || p.Content != "good\n\n" {
		t.Errorf("afterwards: got %q, %v, want %q", p.Content, err, "good")
	}
}

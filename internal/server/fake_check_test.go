package server_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"image"
	"image/png"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
)

// FetchPage returns a page that says what was asked for.
func (f *fake) FetchPage(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.PageAsk) (sandboxmcp.Page, error) {
	return sandboxmcp.Page{URL: ask.URL, Title: "T", Status: 200, Content: fmt.Sprint("# page ", ask.Offset, " ", ask.MaxLength)}, stranger(c)
}

// BrowsePage returns a page that says what was asked for, with a screenshot of a size that the
// selector names.
func (f *fake) BrowsePage(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.BrowserAsk) (sandboxmcp.BrowserPage, error) {
	p := sandboxmcp.BrowserPage{URL: ask.URL, Title: "T", Status: 200, Content: fmt.Sprint("# page ", ask.WaitUntil, " ", ask.TimeoutMS)}
	if ask.Screenshot {
		side, _ := strconv.Atoi(ask.WaitFor)
		p.Screenshot = noise(side)
	}
	return p, stranger(c)
}

// noise returns a PNG that hardly compresses.
func noise(side int) []byte {
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	_, _ = rand.Read(img.Pix)
	var b bytes.Buffer
	_ = png.Encode(&b, img)
	return b.Bytes()
}

// Install installs what was asked for, at version 1.
func (f *fake) Install(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.InstallAsk) (sandboxmcp.Installation, error) {
	r := sandboxmcp.Installation{Success: true, Output: string(ask.Language) + " " + string(ask.SessionID), Installed: []sandboxmcp.InstalledPackage{}, Rejected: []sandboxmcp.RejectedPackage{}}
	for _, name := range ask.Packages {
		r.Installed = append(r.Installed, sandboxmcp.InstalledPackage{Name: name, Version: "1", SHA256: "0"})
	}
	if ask.Note != nil {
		ask.Note("installing")
	}
	return r, stranger(c)
}

// SearchWeb returns one result, unless the query is "nothing".
func (f *fake) SearchWeb(_ context.Context, c sandboxmcp.Caller, ask sandboxmcp.SearchAsk) (sandboxmcp.SearchResults, error) {
	r := sandboxmcp.SearchResults{Engine: "e", Results: []sandboxmcp.SearchResult{}, Tried: []sandboxmcp.TriedEngine{}}
	if ask.Query != "nothing" {
		r.Results = append(r.Results, sandboxmcp.SearchResult{Title: ask.Query, URL: "https://x.test/", Snippet: fmt.Sprint(ask.MaxResults, ask.Engine)})
	}
	return r, stranger(c)
}

// Validate finds nothing, and corrects everything unless it may not.
func (f *fake) Validate(_ context.Context, c sandboxmcp.Caller, check sandboxmcp.CodeCheck) (sandboxmcp.CodeReport, error) {
	r := sandboxmcp.CodeReport{
		Valid: true, Verdict: sandboxmcp.VerdictPass, Issues: []sandboxmcp.Issue{}, FixesApplied: []string{},
		OriginalCode: check.Code, FixedCode: check.Code, Language: check.Language,
	}
	if !check.NoFix {
		r.Verdict, r.FixedCode, r.FixesApplied = sandboxmcp.VerdictFixed, "fixed "+check.Code, []string{"all"}
	}
	return r, stranger(c)
}

package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// fetchWebpage is the row of fetch_webpage.
func fetchWebpage() tool {
	return tool{
		name:        "fetch_webpage",
		title:       "Fetch a web page",
		description: "Fetches a public web page and returns its article as markdown, or the text of a PDF. Its scripts are not run.",
		hints:       hints{readOnly: false, openWorld: true},
		in: input(
			need("url", typed("string")),
			opt("max_length", fallback(limitSchema("Characters of content"), "8000")),
			opt("offset", fallback(atLeast(about("integer", "Characters to skip"), 0), "0")),
		),
		out: output(
			need("url", typed("string")), need("title", typed("string")), need("status", typed("integer")),
			need("content", typed("string")), need("truncated", typed("boolean")), need("total_length", typed("integer")),
		),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			p, err := s.engine.FetchPage(ctx, c.who, sandboxmcp.PageAsk{URL: c.args.text("url"), MaxLength: c.args.whole("max_length"), Offset: c.args.whole("offset")})
			return answer{body: p, text: p.Content}, err
		},
	}
}

// browserFetch is the row of browser_fetch.
func browserFetch() tool {
	return tool{
		name:        "browser_fetch",
		title:       "Browse",
		description: "fetch_webpage with scripts. Slower.",
		alone:       "Fetches a public web page, runs its scripts and returns it as markdown.",
		hints:       hints{readOnly: false, openWorld: true},
		in: input(
			need("url", typed("string")),
			opt("wait_for_selector", typed("string")),
			opt("timeout_ms", fallback(limitSchema(""), "30000")),
			opt("wait_until", fallback(oneOf(typed("string"), sandboxmcp.BrowserWaits()...), `"`+sandboxmcp.BrowserWaits()[0]+`"`)),
			opt("screenshot", fallback(typed("boolean"), "false")),
		),
		out: output(opt("screenshot_b64", typed("string"))), // the others are those of fetch_webpage
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			p, err := s.engine.BrowsePage(ctx, c.who, sandboxmcp.BrowserAsk{
				URL: c.args.text("url"), WaitFor: c.args.text("wait_for_selector"), WaitUntil: c.args.text("wait_until"),
				TimeoutMS: c.args.whole("timeout_ms"), Screenshot: c.args.flag("screenshot"),
			})
			if err != nil {
				return answer{}, err
			}
			return s.showBrowser(ctx, p), nil
		},
	}
}

// maxInlineShot is how many characters of a screenshot a model gets as text. A larger one is
// an image block only.
const maxInlineShot = 64 << 10

// showBrowser shows a page and its screenshot, which is decoded first: it comes from an
// untrusted program.
func (s *Server) showBrowser(ctx context.Context, p sandboxmcp.BrowserPage) answer {
	a := answer{text: p.Content}
	if len(p.Screenshot) > 0 {
		left := maxDecoded
		if picture := s.picture(ctx, "image/png", p.Screenshot, &left); picture != nil {
			a.blocks = append(a.blocks, picture)
		} else {
			p.Screenshot = nil
		}
	}
	if base64.StdEncoding.EncodedLen(len(p.Screenshot)) > maxInlineShot {
		p.Screenshot = nil
	}
	a.body = p
	return a
}

// webSearch is the row of web_search.
func webSearch() tool {
	return tool{
		name:        "web_search",
		title:       "Search the web",
		description: "Asks a search engine and returns titles, URLs and snippets. Read a page with fetch_webpage.",
		hints:       hints{readOnly: false, openWorld: true},
		in: input(
			need("query", typed("string")),
			opt("max_results", atMost(fallback(limitSchema(""), "10"), 50)),
			opt("engine", about("string", "Ask only this one")),
		),
		out: output(need("engine", typed("string")), need("results", typed("array")), need("tried", typed("array"))),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			r, err := s.engine.SearchWeb(ctx, c.who, sandboxmcp.SearchAsk{Query: c.args.text("query"), MaxResults: c.args.whole("max_results"), Engine: c.args.text("engine")})
			return answer{body: r, text: resultList(r)}, err
		},
	}
}

// resultList shows search results as a numbered list.
func resultList(r sandboxmcp.SearchResults) string {
	if len(r.Results) == 0 {
		return "No results from " + r.Engine + "."
	}
	var b strings.Builder
	for i, x := range r.Results {
		fmt.Fprintf(&b, "%d. %s\n   %s\n   %s\n", i+1, x.Title, x.URL, x.Snippet)
	}
	return b.String()
}

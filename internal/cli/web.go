package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

func (a *call) webCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "web",
		Short: "Fetch web pages and search the web",
		Long: `Fetches pages and asks search engines from this machine. Only public addresses are
reached, and those that the setting web_allow_hosts lists. Only web browser runs
scripts of a page, in a sandbox.`,
		Example: `  sandboxmcp web fetch https://example.com/
  sandboxmcp web search 'landlock abi 7'`,
	}, a.webFetchCommand(), a.webBrowserCommand(), a.webSearchCommand())
}

func (a *call) webFetchCommand() *cobra.Command {
	var ask sandboxmcp.PageAsk
	cmd := &cobra.Command{
		Use:   "fetch URL",
		Short: "Print a web page as markdown",
		Long: `Prints the article of a web page as markdown, or the whole page if it has none. Text
that is no HTML is printed as it is.`,
		Example: `  sandboxmcp web fetch https://example.com/
  sandboxmcp web fetch https://example.com/ --max-length 100000 --json`,
		Args: takes("URL"),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&ask.MaxLength, "max-length", 0, "print at most `N` characters (default 8000)")
	f.IntVar(&ask.Offset, "offset", 0, "leave out the first `N` characters")
	return a.onEngine(cmd, func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error {
		if f.Changed("max-length") && ask.MaxLength < 1 {
			return app.Usage("--max-length must be above 0")
		}
		ask.URL = args[0]
		p, err := e.FetchPage(ctx, who, ask)
		if err != nil {
			return err
		}
		return a.answer(a.json, p, func() {
			a.printText(p.Content)
			if p.Truncated {
				a.Say("the page goes on: --offset " + strconv.Itoa(ask.Offset+len([]rune(p.Content))) + " of " + strconv.Itoa(p.TotalLength) + " characters")
			}
		})
	})
}

func (a *call) webBrowserCommand() *cobra.Command {
	var ask sandboxmcp.BrowserAsk
	cmd := &cobra.Command{
		Use:   "browser URL",
		Short: "Open a web page in a browser and print it as markdown",
		Long: `Opens a page in Chromium, which runs in a sandbox and is thrown away afterwards,
and prints what it shows once its scripts have run. Off a terminal, and with
--json, it prints one JSON document.`,
		Example: `  sandboxmcp web browser https://example.com/
  sandboxmcp web browser https://example.com/ --wait-for 'main h1' --timeout 10000
  sandboxmcp web browser https://example.com/ --screenshot --json | jq -r .screenshot_b64 | base64 -d >page.png`,
		Args: takes("URL"),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&ask.WaitFor, "wait-for", "", "wait until the element of the selector `CSS` is visible")
	f.IntVar(&ask.TimeoutMS, "timeout", 0, "give up after `MS` milliseconds (default 30000, at most 120000)")
	f.StringVar(&ask.WaitUntil, "wait-until", sandboxmcp.BrowserWaits()[0], "wait for the `EVENT` networkidle, load, domcontentloaded or commit")
	f.BoolVar(&ask.Screenshot, "screenshot", false, "add a screenshot to the JSON, as screenshot_b64")
	return a.onEngine(cmd, func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error {
		if f.Changed("timeout") && ask.TimeoutMS < 1 {
			return app.Usage("--timeout must be above 0")
		}
		ask.URL = args[0]
		p, err := e.BrowsePage(ctx, who, ask)
		if err != nil {
			return err
		}
		return a.answer(a.document(), p, func() {
			a.printText(p.Content)
			if p.Truncated {
				a.Say("the page goes on: it is too long to be printed")
			}
			if ask.Screenshot {
				a.Say("the screenshot is in the JSON: add --json")
			}
		})
	})
}

func (a *call) webSearchCommand() *cobra.Command {
	var ask sandboxmcp.SearchAsk
	cmd := &cobra.Command{
		Use:   "search QUERY",
		Short: "Ask search engines",
		Long: `Asks search engines one after the other until one has results: the SearXNG of the
setting searxng_url, then those of websearch_engines.`,
		Example: `  sandboxmcp web search 'landlock abi 7'
  sandboxmcp web search golang --engine mojeek --max-results 3`,
		Args: takes("query"),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&ask.MaxResults, "max-results", 10, "print at most `N` results, at most 50")
	f.StringVar(&ask.Engine, "engine", "", "ask only the engine `NAME`")
	return a.onEngine(cmd, func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error {
		ask.Query = args[0]
		if ask.MaxResults < 1 {
			return app.Usage("--max-results must be above 0")
		}
		r, err := e.SearchWeb(ctx, who, ask)
		if err != nil {
			return err
		}
		return a.answer(a.json, r, func() {
			for i, x := range r.Results {
				a.print(strconv.Itoa(i+1) + ". " + app.Clean(x.Title) + "\n   " + app.Clean(x.URL) + "\n   " + app.Clean(x.Snippet) + "\n")
			}
			if len(r.Results) == 0 {
				a.Say("no results from " + r.Engine)
			}
		})
	})
}

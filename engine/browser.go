package engine

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/browser"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/web"
)

// Limits of the sandbox of a browser. Those that the namespace keeps and the ceilings are
// upper bounds of them.
const (
	browserRAMMB     = 1024
	browserCores     = 2
	browserProcesses = 24
	browserTimeoutMS = 30_000
)

// BrowsePage opens a web page in a browser in a sandbox of its own. The audit log gets its
// host, its status and the hosts that it made the browser reach.
func (e *Engine) BrowsePage(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.BrowserAsk) (sandboxmcp.BrowserPage, error) {
	c, ctx, err := e.webCaller(ctx, c, "the url", ask.URL)
	if err != nil {
		return sandboxmcp.BrowserPage{}, err
	}
	act := webAct{action: "web_browser", where: hostOf(ask.URL)}
	if err = e.intendWeb(ctx, c, act, ask.URL); err != nil {
		return sandboxmcp.BrowserPage{}, err
	}
	var t trail
	v, err := e.browse(t.follow(ctx), c, ask)
	page := sandboxmcp.BrowserPage{Status: v.Status, Screenshot: v.Screenshot}
	if err == nil {
		page.URL = v.URL.String()
		page.Title, page.Content, page.Truncated, err = e.web.Rendered(ctx, v.URL, v.HTML)
	}
	act.how, act.others = "status "+strconv.Itoa(v.Status), t.others(act.where)
	if err = e.recordWeb(ctx, c, act, err); err != nil {
		return sandboxmcp.BrowserPage{}, err
	}
	return page, nil
}

// browse opens a page.
func (e *Engine) browse(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.BrowserAsk) (v browser.View, err error) {
	u, err := checkBrowserAsk(&ask)
	if err == nil { // a browser refuses some ports before it connects, and its error would hide this one
		err = e.web.Check(ctx, u)
	}
	if err != nil {
		return v, err
	}
	program, err := browser.Find(func(path string) bool { return plainfile.LeadsInto(e.cfg.changeable(), path) })
	if err != nil {
		return v, err
	}
	timeout := time.Duration(ask.TimeoutMS) * time.Millisecond
	_, err = e.help(ctx, c, helper{
		hint: "browser", trees: program.Trees,
		limits: sandboxmcp.Limits{MaxRAMMB: browserRAMMB, MaxCPUCores: browserCores, MaxProcesses: browserProcesses, TimeoutSeconds: timeout.Seconds()},
		work: func(ctx context.Context, sb backend.Sandbox, _ sandboxmcp.Limits) (err error) {
			v, err = program.Open(ctx, sb, browser.Ask{URL: u, Until: ask.WaitUntil, Selector: ask.WaitFor, Timeout: timeout, Screenshot: ask.Screenshot, Dialer: e.web.Dialer()})
			return err
		},
	})
	if err != nil {
		err = web.Failure(ctx, u, err)
	}
	return v, err
}

// checkBrowserAsk checks what is asked for and completes it.
func checkBrowserAsk(ask *sandboxmcp.BrowserAsk) (*url.URL, error) {
	if ask.TimeoutMS == 0 {
		ask.TimeoutMS = browserTimeoutMS
	}
	if ask.WaitUntil == "" {
		ask.WaitUntil = sandboxmcp.BrowserWaits()[0]
	}
	switch {
	case ask.TimeoutMS < 0, ask.TimeoutMS > sandboxmcp.MaxBrowserTimeoutMS:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "timeout_ms is %d; it has to be from 1 to %d", ask.TimeoutMS, sandboxmcp.MaxBrowserTimeoutMS)
	case !slices.Contains(sandboxmcp.BrowserWaits(), ask.WaitUntil):
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "wait_until %s is not known", sandboxmcp.Quote(ask.WaitUntil)).
			WithHint("use " + strings.Join(sandboxmcp.BrowserWaits(), ", "))
	case len(ask.WaitFor) > maxSelector:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "wait_for_selector has more than %d bytes", maxSelector)
	}
	return web.ParseURL(ask.URL)
}

const maxSelector = 4 << 10

package engine

import (
	"cmp"
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/pdf"
	"github.com/sandboxmcp/sandboxmcp/internal/web"
)

// webCaller returns the caller of a web verb, and a context in which hosts that a person has denied the
// caller's namespace are refused. text is what the caller sends out.
func (e *Engine) webCaller(ctx context.Context, c sandboxmcp.Caller, what, text string) (sandboxmcp.Caller, context.Context, error) {
	c, err := e.caller(c)
	if err == nil && e.settings().NoWeb {
		err = sandboxmcp.Errorf(sandboxmcp.CodeNetworkDisabled, "the web tools are off").WithHint("an operator turns them on with enable_web_access (SANDBOXMCP_WEB_ACCESS)")
	}
	if err == nil {
		err = e.plainName(ctx, c.Namespace, what, text)
	}
	return c, e.egress.Judging(ctx, c.Namespace), err
}

// FetchPage fetches a web page. The audit log gets its host and status, not its path.
func (e *Engine) FetchPage(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.PageAsk) (sandboxmcp.Page, error) {
	c, ctx, err := e.webCaller(ctx, c, "the url", ask.URL)
	if err != nil {
		return sandboxmcp.Page{}, err
	}
	p, err := e.fetch(ctx, c, ask)
	detail := hostOf(ask.URL)
	if last := hostOf(p.URL); err == nil && last != detail {
		detail += " to " + last
	}
	return p, e.recordWeb(ctx, c, webAct{"web_fetch", detail, "status " + strconv.Itoa(p.Status)}, err)
}

// fetch is FetchPage without its checks and the record.
func (e *Engine) fetch(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.PageAsk) (sandboxmcp.Page, error) {
	done, err := inTurn(ctx, e.fetches, c.Namespace)
	if err != nil {
		return sandboxmcp.Page{}, err
	}
	defer done()
	return e.web.Fetch(ctx, ask, func(ctx context.Context, document []byte) (string, error) { return e.readPDF(ctx, c, document) })
}

// readPDF returns the text of a PDF document, which a program reads in a sandbox of its own.
func (e *Engine) readPDF(ctx context.Context, c sandboxmcp.Caller, document []byte) (text string, err error) {
	program, err := pdf.Find()
	if err != nil {
		return "", err
	}
	_, err = e.help(ctx, c, helper{hint: "pdf", limits: pdf.Limits(), work: func(ctx context.Context, sb backend.Sandbox, l sandboxmcp.Limits) (err error) {
		text, err = program.Text(ctx, sb, document, l.Timeout())
		return err
	}})
	return text, err
}

// search is SearchWeb without its checks and the record.
func (e *Engine) search(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.SearchAsk) (sandboxmcp.SearchResults, error) {
	done, err := inTurn(ctx, e.fetches, c.Namespace)
	if err != nil {
		return sandboxmcp.SearchResults{}, err
	}
	defer done()
	return e.web.Search(ctx, ask)
}

// SearchWeb asks a search engine. The audit log gets the engine's name, not the query.
func (e *Engine) SearchWeb(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.SearchAsk) (sandboxmcp.SearchResults, error) {
	c, ctx, err := e.webCaller(ctx, c, "the query", ask.Query)
	if err != nil {
		return sandboxmcp.SearchResults{}, err
	}
	r, err := e.search(ctx, c, ask)
	return r, e.recordWeb(ctx, c, webAct{"web_search", cmp.Or(r.Engine, ask.Engine, "all engines"), "results=" + strconv.Itoa(len(r.Results))}, err)
}

// webAct is a request of a web tool, as the record has it.
type webAct struct{ action, where, how string }

// recordWeb records a request of a web tool and returns its error.
func (e *Engine) recordWeb(ctx context.Context, c sandboxmcp.Caller, act webAct, failed error) error {
	if failed != nil {
		act.how = string(sandboxmcp.CodeOf(failed))
	}
	success := failed == nil
	_, err := e.audit.Append(context.WithoutCancel(ctx), sandboxmcp.AuditEntry{
		Action: act.action, Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor, Success: &success, Detail: act.where + ": " + act.how,
	})
	if failed != nil {
		return failed
	}
	return err
}

// hostOf returns the host of a URL, for the record; "" if it has none.
func hostOf(text string) string {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// openWeb makes what the web tools use. It connects to nothing.
func (e *Engine) openWeb() {
	e.web = web.New(web.Config{Allow: e.cfg.WebAllow, SearXNG: e.cfg.SearXNG, Engines: e.cfg.SearchEngines, Version: e.cfg.Version, Now: e.cfg.Now})
}

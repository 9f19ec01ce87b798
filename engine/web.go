package engine

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
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

// trail collects the hosts that a web tool connects to, for the audit record: that of the URL, those of redirects and
// those of parts of a page.
type trail struct {
	mu    sync.Mutex
	hosts []string
	more  int // tries of hosts that are not among them
}

// maxTrail bounds the hosts that are named. A page may make a browser ask any number.
const maxTrail = 256

// follow returns a context in which the trail sees each host that the judge of ctx lets through.
func (t *trail) follow(ctx context.Context) context.Context {
	return egress.WithJudge(ctx, func(_ context.Context, host string, port int) error {
		if err := egress.Judged(ctx, net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case slices.Contains(t.hosts, host):
		case len(t.hosts) < maxTrail:
			t.hosts = append(t.hosts, host)
		default:
			t.more++
		}
		return nil
	})
}

// others returns the hosts of the trail but those, in their order.
func (t *trail) others(those ...string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(t.hosts), func(h string) bool { return slices.Contains(those, h) })
	if t.more > 0 {
		all = append(all, "and "+strconv.Itoa(t.more)+" more requests to further hosts")
	}
	return all
}

// FetchPage fetches a web page. The audit log gets its status and the hosts that were asked, not its path.
func (e *Engine) FetchPage(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.PageAsk) (sandboxmcp.Page, error) {
	c, ctx, err := e.webCaller(ctx, c, "the url", ask.URL)
	if err != nil {
		return sandboxmcp.Page{}, err
	}
	first := hostOf(ask.URL)
	if err = e.intendWeb(ctx, c, webAct{action: "web_fetch", where: first}, ask.URL); err != nil {
		return sandboxmcp.Page{}, err
	}
	var t trail
	p, err := e.fetch(t.follow(ctx), c, ask)
	last := hostOf(p.URL)
	act := webAct{action: "web_fetch", where: first, how: "status " + strconv.Itoa(p.Status)}
	if err == nil && last != first {
		act.where += " to " + last
	}
	act.others = t.others(first, last)
	return p, e.recordWeb(ctx, c, act, err)
}

// fetch is FetchPage without its checks and the record.
func (e *Engine) fetch(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.PageAsk) (sandboxmcp.Page, error) {
	done, err := inTurn(ctx, e.fetches, c)
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
	done, err := inTurn(ctx, e.fetches, c)
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
	where := "all engines"
	if ask.Engine != "" {
		where = sandboxmcp.Quote(ask.Engine)
	}
	if err = e.intendWeb(ctx, c, webAct{action: "web_search", where: where}, ""); err != nil {
		return sandboxmcp.SearchResults{}, err
	}
	var t trail
	r, err := e.search(t.follow(ctx), c, ask)
	act := webAct{action: "web_search", where: cmp.Or(r.Engine, where), how: "results=" + strconv.Itoa(len(r.Results))}
	act.others = t.others(hostOf(e.cfg.SearXNG)) // which is the operator's own
	return r, e.recordWeb(ctx, c, act, err)
}

// webAct is a request of a web tool, as the audit record describes it.
type webAct struct {
	action, where, how string

	others []string // further hosts that the tool connected to
}

// maxWhere bounds the bytes of webAct.where in the audit record. It is longer than any host.
const maxWhere = 600

func (a webAct) detail() string {
	where := a.where
	if len(where) > maxWhere {
		where = strings.ToValidUTF8(where[:maxWhere], "") + "…"
	}
	if a.how == "" {
		return where
	}
	text := where + ": " + a.how
	if len(a.others) > 0 {
		text += ", and " + strings.Join(a.others, " ")
	}
	return text
}

// intendWeb records what a web tool is about to do. If that cannot be recorded, the tool must not connect. For an
// invalid URL, at, it records nothing.
func (e *Engine) intendWeb(ctx context.Context, c sandboxmcp.Caller, act webAct, at string) error {
	if at != "" {
		if _, err := web.ParseURL(at); err != nil {
			return nil //nolint:nilerr // the fetch fails with the same error, and its outcome is recorded
		}
	}
	_, err := e.audit.Append(ctx, sandboxmcp.AuditEntry{Action: act.action, Phase: sandboxmcp.PhaseIntent, Namespace: c.Namespace, Actor: c.Actor, Detail: act.detail()})
	return err
}

// recordWeb records a request of a web tool and returns its error.
func (e *Engine) recordWeb(ctx context.Context, c sandboxmcp.Caller, act webAct, failed error) error {
	if failed != nil {
		act.how = string(sandboxmcp.CodeOf(failed))
	}
	success := failed == nil
	_, err := e.audit.Append(context.WithoutCancel(ctx), sandboxmcp.AuditEntry{
		Action: act.action, Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor, Success: &success, Detail: act.detail(),
	})
	if failed != nil {
		return failed
	}
	return err
}

// hostOf returns the host of a URL, for the record; "" if it has none. An address with a zone, which is any text,
// is in quotes.
func hostOf(text string) string {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return ""
	}
	host := u.Hostname()
	if strings.Contains(host, "%") {
		return sandboxmcp.Quote(host)
	}
	return host
}

// openWeb makes the client of the web tools. It connects to nothing.
func (e *Engine) openWeb() {
	e.web = web.New(web.Config{Allow: e.cfg.WebAllow, SearXNG: e.cfg.SearXNG, Engines: e.cfg.SearchEngines, Version: e.cfg.Version, Now: e.cfg.Now})
}

// Package browser opens web pages in a Chromium that runs in a sandbox. The caller opens a
// sandbox for one page and closes it afterwards, and with it the profile and every process.
// The browser has no other way out than the proxy of package egress, which checks the
// address of each connection, and none to this process but a pair of pipes with messages of
// the DevTools protocol, which are bounded.
//
// Scripts of the page run, and may take over the browser. They then have what every program
// in a sandbox has, and the public web.
package browser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// Ask is what to open, and what to wait for.
type Ask struct {
	URL        *url.URL // http or https
	Until      string   // one of sandboxmcp.BrowserWaits
	Selector   string   // of an element that has to be visible then; empty: none
	Timeout    time.Duration
	Screenshot bool
	Dialer     *egress.Dialer // makes the connections
}

// lifecycle maps the values of Ask.Until to the events of the DevTools protocol.
var lifecycle = map[string]string{"networkidle": "networkIdle", "load": "load", "domcontentloaded": "DOMContentLoaded", "commit": "init"}

// View is a page as the browser has it.
type View struct {
	URL        *url.URL // after redirects, also those of scripts
	Status     int      // 0: the page did not come from a web server
	HTML       []byte
	Screenshot []byte // a PNG; nil: none was asked for. It comes from an untrusted program
}

// Open opens a page in a sandbox in which nothing else runs, and that the caller closes.
// Programs of the sandbox may still run when Open returns. Its error is an
// *sandboxmcp.Error, or the error of the connection to the page's host.
func (p Program) Open(ctx context.Context, sb backend.Sandbox, ask Ask) (View, error) {
	net, ok := sb.(backend.Networker)
	if !ok {
		return View{}, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the backend cannot give a sandbox a network").WithHint("use the process backend")
	}
	late := failed("the page was not ready after %s", ask.Timeout).WithHint("raise timeout_ms, or wait for less: wait_until load")
	ctx, cancel := context.WithTimeoutCause(ctx, ask.Timeout, late)
	defer cancel()
	network, err := net.Network(ctx, nil)
	if err != nil {
		return View{}, err
	}
	way := egress.Forward(ctx, network, ask.Dialer)
	defer way.Close()
	log := &tail{}
	r, err := p.start(ctx, sb, log)
	if err != nil {
		return View{}, err
	}
	t := newTab(ctx, r.Channel(0), way)
	defer context.AfterFunc(ctx, func() { _ = t.conn.pipe.Close() })()
	defer func() { _ = t.conn.pipe.Close() }()
	v, err := t.view(ctx, ask)
	if err != nil {
		return View{}, t.explain(ctx, sb, log, err)
	}
	return v, nil
}

// explain returns the error of a view that failed.
func (t *tab) explain(ctx context.Context, sb backend.Sandbox, log *tail, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, context.Canceled) {
			return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled").WithCause(cause)
		}
		return cause
	}
	if !errors.Is(err, errLost) && !errors.Is(err, errCrashed) {
		return err
	}
	if u, failed := sb.Usage(ctx); failed == nil && u.OOMKills > 0 {
		return crashed("the page needs more memory than its sandbox may use").WithCause(err)
	}
	if !t.attached() {
		lines := strings.Split(log.String(), "\n")
		return unavailable("the browser does not start: " + sandboxmcp.Quote(lines[len(lines)-1])).WithCause(err)
	}
	if errors.Is(err, errTooMuch) {
		return crashed("the page is too large").WithCause(err)
	}
	return crashed("the page made the browser crash").WithCause(err)
}

// failed is the error of a page that cannot be shown.
func failed(format string, args ...any) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, format, args...)
}

func crashed(why string) *sandboxmcp.Error {
	return failed("%s", why).WithHint("use fetch_webpage, which runs no scripts")
}

// unreached returns the error of a document that did not come: that of the connection to its
// host, if there is one.
func (t *tab) unreached(ctx context.Context, text string) error {
	at := t.lastAsked()
	u, err := url.Parse(at)
	if err != nil {
		return failed("the page leads to a URL that cannot be parsed")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return failed("the page leads to %s, which is no web page", sandboxmcp.Quote(u.Scheme+":"))
	}
	err = t.way.Failure(addressOf(u))
	if err == nil && strings.Contains(text, "ERR_UNSAFE_PORT") { // the browser has not tried it
		err = t.way.Check(ctx, addressOf(u))
	}
	if err != nil {
		return err
	}
	switch {
	case strings.Contains(text, "ERR_ABORTED"):
		return failed("%s sends a file and no page", u.Hostname()).WithHint("use fetch_webpage for text and PDF")
	case strings.Contains(text, "CERT"), strings.Contains(text, "SSL"):
		return failed("%s cannot be opened: its certificate is not valid", u.Hostname())
	case strings.Contains(text, "ERR_TOO_MANY_REDIRECTS"):
		return failed("%s cannot be opened: it redirects too often", u.Hostname())
	}
	return failed("%s cannot be opened: %s", u.Hostname(), sandboxmcp.Quote(strings.TrimPrefix(text, "net::")))
}

// addressOf returns the host:port of a URL.
func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// notPage is the error of a tab that has left the web.
func notPage(scheme string) error {
	return failed("the page leads to %s, which is no web page", sandboxmcp.Quote(fmt.Sprintf("%.20s:", scheme)))
}

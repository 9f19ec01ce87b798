package packages

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// Bounds of what is fetched.
const (
	maxDocument  = 64 << 20 // bytes of a document of an index, decompressed
	maxFile      = 1 << 30  // bytes of a wheel or tarball
	maxMetadata  = 4 << 20  // bytes of the metadata of a wheel
	maxHead      = 256 << 10
	maxRedirects = 5
	maxHost      = 253 // bytes of the name of a host
	maxHosts     = 100 // that are recorded
	dialTime     = 10 * time.Second
	documentTime = 60 * time.Second
	fileTime     = 15 * time.Minute
	stallTime    = 30 * time.Second // without a byte
)

// network makes the requests of one gateway.
type network struct {
	client  *client
	agent   string
	http    *http.Client
	trusted map[string]bool
	close   func()

	mu    sync.Mutex
	hosts map[string]bool // that were asked
}

func newNetwork(c *client, cfg Config) (*network, error) {
	trusted, err := c.trusted()
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "this machine's configuration cannot be used").WithCause(err)
	}
	n := &network{client: c, agent: "sandboxmcp/" + cfg.Version, trusted: trusted, close: func() {}, hosts: map[string]bool{}}
	transport := cfg.Transport
	if transport == nil {
		pool, err := c.certificates()
		if err != nil {
			return nil, err
		}
		t := &http.Transport{
			Proxy:                  func(r *http.Request) (*url.URL, error) { return c.proxy(r.URL) },
			DialContext:            n.dial,
			TLSClientConfig:        &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    dialTime,
			ResponseHeaderTimeout:  stallTime,
			MaxResponseHeaderBytes: maxHead,
			MaxConnsPerHost:        8,
			IdleConnTimeout:        30 * time.Second,
		}
		transport, n.close = t, t.CloseIdleConnections
	}
	n.http = &http.Client{Transport: egress.Redirecting(transport), CheckRedirect: n.follow}
	return n, nil
}

// dial connects to an index of this machine's configuration wherever it is, and to any other
// host only at a public address.
func (n *network) dial(ctx context.Context, kind, to string) (net.Conn, error) {
	if n.trusted[strings.ToLower(to)] {
		d := net.Dialer{Timeout: dialTime}
		return d.DialContext(ctx, kind, to)
	}
	return egress.NewDialer(dialTime, nil).DialContext(ctx, kind, to)
}

// permit fails if a URL of a document, or of a redirect, may not be requested.
func (n *network) permit(u *url.URL) error {
	switch {
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || len(u.Hostname()) > maxHost || u.User != nil:
		return errors.New("it is not the URL of a file server")
	case n.trusted[address(u)]:
		return nil
	case u.Scheme != "https":
		return errors.New("it is on another host, without TLS")
	}
	if via, err := n.client.proxy(u); err != nil || via != nil {
		// The proxy would connect, so the address cannot be checked here.
		return errors.New("it is on another host, which only a proxy reaches")
	}
	return nil
}

// redirectError means that a server redirects to where it must not lead.
type redirectError struct{ why string }

func (e *redirectError) Error() string { return e.why }

// follow checks a redirect. A credential is sent only where the configuration says.
func (n *network) follow(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return &redirectError{fmt.Sprintf("it redirects more than %d times", maxRedirects)}
	case r.URL.User != nil || r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return &redirectError{"it redirects to something that is no file server"}
	case first.Scheme == "https" && r.URL.Scheme == "http":
		return &redirectError{"it redirects to a URL without TLS"}
	case address(r.URL) != address(first) && !n.trusted[address(r.URL)]:
		return &redirectError{"it redirects to another host, " + clean(r.URL.Hostname())}
	}
	r.Header.Del("Referer")
	n.authorize(r)
	return nil
}

func (n *network) authorize(r *http.Request) {
	r.Header.Del("Authorization")
	if h := n.client.header(r.URL); h != "" {
		r.Header.Set("Authorization", h)
	}
	n.mu.Lock()
	if len(n.hosts) < maxHosts {
		n.hosts[r.URL.Hostname()] = true
	}
	n.mu.Unlock()
}

// asked returns the hosts that requests were sent to.
func (n *network) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for h := range n.hosts {
		all = append(all, h)
	}
	slices.Sort(all)
	return all
}

// get sends a request. The caller closes the body. Reading it fails when no byte came for
// stallTime.
func (n *network) get(ctx context.Context, u *url.URL, head http.Header) (*http.Response, error) {
	if err := n.permit(u); err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "the index names a file that is not fetched: %s: %s", clean(u.Host), err).
			WithHint(trustHint)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil) //nolint:gosec // permit and dial check where it leads
	if err != nil {
		cancel(nil)
		return nil, unreachable(u, err)
	}
	r.Header = head.Clone()
	r.Header.Set("User-Agent", n.agent)
	n.authorize(r)
	res, err := n.http.Do(r) //nolint:gosec // as above
	if err != nil {
		cancel(nil)
		return nil, unreachable(u, err)
	}
	res.Body = &watched{body: res.Body, cancel: cancel, timer: time.AfterFunc(stallTime, func() { cancel(errStalled) }), ctx: ctx}
	return res, nil
}

const trustHint = "pip's setting trusted-host names file servers with other addresses; an npm registry has to send its files itself"

var errStalled = fmt.Errorf("no byte came for %s", stallTime)

// watched is a body that fails when no byte comes.
type watched struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	ctx    context.Context //nolint:containedctx // its cause says why reading failed
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if n > 0 {
		w.timer.Reset(stallTime)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(w.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	w.cancel(nil)
	return w.body.Close()
}

// offlineError marks a failure after which a copy in the cache may be used.
type offlineError struct{ cause error }

func (e *offlineError) Error() string { return e.cause.Error() }
func (e *offlineError) Unwrap() error { return e.cause }

// unreachable is the error of a request that got no answer. It has no URL in it, which may
// contain a secret.
func unreachable(u *url.URL, err error) error {
	if blocked, ok := errors.AsType[*egress.BlockedError](err); ok {
		return sandboxmcp.Errorf(sandboxmcp.CodeBlockedAddress, "the index names a file at an address that is not public: %s", blocked.Error()).WithCause(err).
			WithHint(trustHint)
	}
	if redirect, ok := errors.AsType[*redirectError](err); ok {
		return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package index %s is not used: %s", u.Hostname(), redirect.why).
			WithHint("correct the index in `pip config list` or `npm config list`; " + trustHint)
	}
	if errors.Is(err, context.Canceled) && !errors.Is(err, errStalled) {
		return cancelled().WithCause(err)
	}
	why, text := egress.Unreachable(err), err.Error()
	switch {
	case errors.Is(err, errStalled):
		why = errStalled.Error()
	case strings.Contains(text, "certificate"), strings.Contains(text, "tls:"):
		why = "its certificate is not valid"
	case strings.Contains(text, "response headers exceeded"), strings.Contains(text, "malformed HTTP"), strings.Contains(text, "gzip:"):
		why = "its answer is not valid HTTP"
	}
	return &offlineError{sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package index %s cannot be reached: %s", u.Hostname(), why).WithCause(err).
		WithHint("check index, proxy and certificates in `pip config list` or `npm config list`, or install later")}
}

// statusError is the error of an answer that is no document.
func statusError(u *url.URL, status int) error {
	e := sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package index %s answers with status %d", u.Hostname(), status)
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return e.WithHint("check the user, password or token of the index in pip's or npm's configuration")
	}
	e = e.WithHint("install later, or check the index in `pip config list` or `npm config list`")
	if status >= 500 || status == http.StatusTooManyRequests {
		return &offlineError{e}
	}
	return e
}

// readAll reads a body of at most limit bytes.
func readAll(u *url.URL, body io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, unreachable(u, err)
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(u, limit)
	}
	return data, nil
}

func tooLarge(u *url.URL, limit int64) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package index %s sends more than %d MiB for one file", u.Hostname(), limit>>20).
		WithHint("use another package or index")
}

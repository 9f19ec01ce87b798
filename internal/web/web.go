// Package web fetches pages and asks search engines, for the web tools. Its requests come
// from the server and not from a sandbox, so they are bounded: in the addresses that they
// may reach, which are those that sandboxes may reach, in redirects, size and time. Nothing
// of a page is run.
package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/idna"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// Bounds of a request.
const (
	maxBody      = 4 << 20  // bytes of a page, decompressed
	maxHead      = 64 << 10 // bytes of the head of an answer, which take fifty times as much when parsed
	maxRedirects = 10
	maxTime      = 25 * time.Second
	dialTime     = 10 * time.Second
	maxURL       = 8 << 10
	concurrent   = 4 // pages that are converted at once
)

// Config configures a [Client].
type Config struct {
	Allow   []string // host:port pairs that may have a private address
	SearXNG string   // URL of a SearXNG; empty: none
	Engines []string // names of search engines, in the order in which they are asked; nil: all
	Version string
	Now     func() time.Time // nil: the machine's clock
}

// Client makes the requests of the web tools. Its methods may be called concurrently.
type Client struct {
	cfg   Config
	dial  *egress.Dialer
	http  *http.Client
	conns *pool
	turns chan struct{}

	mu    sync.Mutex
	rests map[string]time.Time // until when an engine that blocked us is not asked
}

// New makes a Client. It needs no Close.
func New(c Config) *Client {
	if c.Now == nil {
		c.Now = time.Now
	}
	dial := egress.NewDialer(dialTime, c.Allow)
	conns := &pool{dial: dial}
	conns.renew()
	return &Client{
		cfg: c, dial: dial, conns: conns, turns: make(chan struct{}, concurrent), rests: map[string]time.Time{},
		http: &http.Client{Transport: judged{egress.Redirecting(conns), dial}, CheckRedirect: follow},
	}
}

// SetAllow replaces [Config.Allow]. No connection that was made before carries a later request, so that none of them
// outlives its permission.
func (c *Client) SetAllow(allow []string) {
	c.dial.SetAllow(allow)
	c.conns.renew()
}

// pool keeps idle connections for later requests.
type pool struct {
	dial *egress.Dialer
	now  atomic.Pointer[http.Transport]
}

// RoundTrip implements [http.RoundTripper].
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) { return p.now.Load().RoundTrip(r) }

// renew begins a new pool and closes the idle connections of the former one. It does not suffice to close these: a
// connection in use is idle later.
func (p *pool) renew() {
	before := p.now.Swap(&http.Transport{
		DialContext:            p.dial.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    dialTime,
		MaxResponseHeaderBytes: maxHead,
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
	})
	if before != nil {
		before.CloseIdleConnections()
	}
}

// Dialer returns what makes the connections of the web tools.
func (c *Client) Dialer() *egress.Dialer { return c.dial }

// Check returns an error if the host or the address of a URL forbids to fetch it. It makes no
// connection.
func (c *Client) Check(ctx context.Context, u *url.URL) error {
	err := c.dial.Check(ctx, addressOf(u))
	if err == nil {
		err = c.dial.WebPort(addressOf(u))
	}
	if err != nil {
		return Failure(ctx, u, err)
	}
	return nil
}

// addressOf returns the host:port of a URL.
func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// judged asks the judge of a request's context, because the connection may be there already. It refuses ports of other
// protocols, whose servers could take the text of a URL for commands.
type judged struct {
	http.RoundTripper

	dial *egress.Dialer
}

func (t judged) RoundTrip(r *http.Request) (*http.Response, error) {
	err := egress.Judged(r.Context(), addressOf(r.URL))
	if err == nil {
		err = t.dial.WebPort(addressOf(r.URL))
	}
	if err != nil {
		return nil, err
	}
	return t.RoundTripper.RoundTrip(r)
}

// follow refuses redirects that lead elsewhere than to web servers, and too many of them.
func follow(r *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	r.Header.Del("Referer") // the address of the last page may be private
	return checkURL(r.URL)
}

// ParseURL parses the URL of a page. It fails with invalid_argument.
func ParseURL(text string) (*url.URL, error) {
	refuse := func(why string) (*url.URL, error) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is not the URL of a web page: %s", sandboxmcp.Quote(text), why).
			WithHint("use a URL such as https://name.example/page")
	}
	if len(text) > maxURL {
		return refuse("it is too long")
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return refuse("it cannot be parsed")
	}
	if err := checkURL(u); err != nil {
		return refuse(err.Error())
	}
	return u, nil
}

// checkURL says why a URL cannot be fetched, and writes its host in ASCII.
func checkURL(u *url.URL) error {
	host := u.Hostname()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("its scheme is not http or https")
	case u.User != nil:
		return errors.New("it contains a user or a password")
	case host == "":
		return errors.New("it has no host")
	case !isPort(u.Port()):
		return errors.New("its port is not from 1 to 65535")
	case len(host) > egress.MaxHost:
		return egress.ErrHost
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" { // a zone is any text, and no web server needs one
		return nil
	}
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(host, "."))
	if err == nil {
		_, err = sandboxmcp.ParseHost(ascii)
	}
	if err != nil {
		return egress.ErrHost
	}
	if p := u.Port(); p != "" {
		ascii = net.JoinHostPort(ascii, p)
	}
	u.Host = ascii
	return nil
}

// isPort reports whether a port is that of a server, or empty.
func isPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// answer is what a web server sent.
type answer struct {
	url    *url.URL // after redirects
	status int
	head   http.Header
	body   []byte
}

// get sends a GET request and reads the answer.
func (c *Client) get(ctx context.Context, u *url.URL, accept string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return answer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s cannot be requested", sandboxmcp.Quote(u.String())).WithCause(err)
	}
	r.Header.Set("User-Agent", "Mozilla/5.0 (compatible; sandboxmcp/"+c.cfg.Version+")")
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Language", "en-US,en;q=0.8,*;q=0.5")
	res, err := c.http.Do(r)
	if err != nil {
		return answer{}, Failure(ctx, u, err)
	}
	defer res.Body.Close()
	var page bytes.Buffer
	page.Grow(int(min(max(res.ContentLength, 0), maxBody)) + bytes.MinRead)
	_, err = page.ReadFrom(io.LimitReader(res.Body, maxBody+1))
	body := page.Bytes()
	if err != nil {
		return answer{}, Failure(ctx, u, err)
	}
	if len(body) > maxBody {
		return answer{}, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the page has more than %d bytes", maxBody).With("limit_bytes", maxBody).
			WithHint("fetch it in a program that may reach its domain")
	}
	return answer{url: res.Request.URL, status: res.StatusCode, head: res.Header, body: body}, nil
}

// Failure is the error of a request that got no answer. It returns an *sandboxmcp.Error as it
// is.
func Failure(ctx context.Context, u *url.URL, err error) error {
	if own, ok := errors.AsType[*sandboxmcp.Error](err); ok {
		return own
	}
	if blocked, ok := errors.AsType[*egress.BlockedError](err); ok {
		return sandboxmcp.Errorf(sandboxmcp.CodeBlockedAddress, "%s", blocked.Error()).WithCause(err).
			WithHint("only public addresses can be fetched; the operator may list others in web_allow_hosts")
	}
	if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled").WithCause(cause)
	}
	why := egress.Unreachable(err)
	text := err.Error()
	if asked, ok := errors.AsType[*url.Error](err); ok { // without the URL, whose text says nothing of the failure
		text = asked.Err.Error()
	}
	switch {
	case strings.Contains(text, "redirects"):
		why = "it redirects too often"
	case strings.Contains(text, "its scheme is not"), strings.Contains(text, "its host is"), strings.Contains(text, "it contains a user"):
		why = "it redirects to something that is no web page"
	case strings.Contains(text, "certificate"), strings.Contains(text, "tls:"):
		why = "its certificate is not valid"
	case strings.Contains(text, "response headers exceeded"), strings.Contains(text, "malformed HTTP"), strings.Contains(text, "gzip:"):
		why = "its answer is not valid HTTP"
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "%s cannot be fetched: %s", u.Hostname(), why).WithCause(err)
}

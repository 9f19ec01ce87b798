package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Bounds of a Forwarder.
const (
	forwardConns  = 64        // open connections of the sandbox
	forwardBytes  = 256 << 20 // bytes in both directions
	forwardAnswer = 64 << 10  // bytes of the head of an answer; that of a request has headBytes
	forwardIdle   = 30 * time.Second
	forwardFirst  = 10 * time.Second // time for the head of a request, and for the first bytes in a tunnel
	forwardHosts  = 64               // hosts whose failures are remembered
	refusedHeader = "Sandboxmcp-Refused"
)

// Forwarder is the HTTP proxy of a browser in a sandbox, and the sandbox's only way out. It
// dials with a [Dialer], so it checks the address of each connection when it is made:
// redirects, parts of pages, WebSockets and names that change their address included.
// Tunnels carry only TLS and HTTP. Ports of other protocols, such as mail and databases, are refused; see notWeb.
//
// Unlike a [Link] it has no list of hosts: the caller lets the browser reach every public
// web server. Its methods may be called concurrently.
type Forwarder struct {
	dial   *Dialer
	effort *backend.Effort
	mark   string // value of refusedHeader in refusals; no web server knows it
	left   atomic.Int64
	ctx    context.Context //nolint:containedctx // its own life, until Close or the end of the caller's
	stop   context.CancelFunc
	proxy  *httputil.ReverseProxy
	http   *http.Transport
	serve  *http.Server
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{} // both ends of tunnels
	failed map[string]error      // why a host:port was not reached
}

// Forward serves the proxy of a sandbox's network until Close or the end of ctx, and closes every other
// socket of the network.
func Forward(ctx context.Context, n *backend.Network, d *Dialer) *Forwarder {
	f := &Forwarder{dial: d, effort: n.Effort, mark: rand.Text(), open: map[net.Conn]struct{}{}, failed: map[string]error{}}
	f.left.Store(forwardBytes)
	f.ctx, f.stop = context.WithCancel(ctx)
	f.http = &http.Transport{
		DialContext:            func(ctx context.Context, _, address string) (net.Conn, error) { return f.connect(ctx, address) },
		DisableCompression:     true,
		MaxResponseHeaderBytes: forwardAnswer,
		IdleConnTimeout:        forwardIdle,
		MaxConnsPerHost:        16,
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	f.proxy = &httputil.ReverseProxy{Transport: f.http, ErrorLog: quiet, FlushInterval: -1, Rewrite: rewrite, ModifyResponse: f.count, ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
		f.refuse(w, hostPort(r.URL.Host), err)
	}}
	f.serve = &http.Server{
		Handler: f, ErrorLog: quiet, MaxHeaderBytes: headBytes - slack, ReadHeaderTimeout: forwardFirst, IdleTimeout: forwardIdle,
		BaseContext: func(net.Listener) context.Context { return f.ctx },
	}
	for _, c := range n.DNS {
		_ = c.Close()
	}
	for _, l := range n.DNSTCP {
		_ = l.Close()
	}
	for _, l := range n.TCP {
		_ = l.Close()
	}
	l := netutil.LimitListener(&paced{n.Proxy, n.Effort}, forwardConns)
	f.work.Go(func() { _ = f.serve.Serve(l) })
	return f
}

// paced charges connections to the sandbox's share of the server's time.
type paced struct {
	net.Listener
	effort *backend.Effort
}

func (p *paced) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err == nil {
		p.effort.Pace(backend.CostConnection)
	}
	return c, err
}

// Close ends all connections and waits for their goroutines.
func (f *Forwarder) Close() {
	defer f.effort.Free()() // nothing rests any more
	f.stop()
	_ = f.serve.Close()
	f.mu.Lock()
	f.closed = true
	for c := range f.open {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.work.Wait()
	f.http.CloseIdleConnections()
}

// Check returns the error that a connection to a host:port would fail with, and connects to nothing.
func (f *Forwarder) Check(ctx context.Context, address string) error {
	if err := f.dial.Check(ctx, address); err != nil {
		return err
	}
	return f.dial.WebPort(address)
}

// Failure returns why a host:port was not reached the last time; nil: it was, or was not
// tried.
func (f *Forwarder) Failure(address string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed[address]
}

// Refused reports whether an answer with these fields is a refusal of the Forwarder.
func (f *Forwarder) Refused(field func(name string) string) bool {
	return field(refusedHeader) == f.mark
}

// slack is what net/http reads beyond the bytes that a head may have.
const slack = 4 << 10

// ServeHTTP serves a request of the browser.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case len(r.Header) > headFields:
		f.refuse(w, "", errFields)
	case r.Method == http.MethodConnect:
		f.tunnel(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "" && r.URL.User == nil:
		if err := webHost(r.URL.Hostname()); err != nil { // before net/http, which would convert a very long host to ASCII
			f.refuse(w, hostPort(r.URL.Host), err)
			return
		}
		f.effort.Pace(backend.CostConnection) // a connection may carry any number of requests
		r.Body = &metered{r.Body, f}
		f.proxy.ServeHTTP(w, r)
	default:
		f.refuse(w, "", errors.New("this is a proxy for http:// URLs and CONNECT"))
	}
}

// rewrite makes the request to the web server. A browser opens WebSockets by CONNECT.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.Header.Del("Upgrade")
	r.Out.Header.Del("Connection")
	r.Out.Host = r.In.URL.Host
}

// count counts the bytes of an answer, and removes a field that would make it look like a
// refusal.
func (f *Forwarder) count(r *http.Response) error {
	if r.StatusCode == http.StatusSwitchingProtocols {
		return errors.New("the protocol cannot be changed")
	}
	if len(r.Header) > answerFields {
		return errFields
	}
	r.Header.Del(refusedHeader)
	r.Body = &metered{r.Body, f}
	return nil
}

// metered reads until the bytes of the Forwarder are used up.
type metered struct {
	io.ReadCloser
	f *Forwarder
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.f.left.Add(-int64(n)) < 0 {
		return n, errBytes
	}
	c.f.charge(n)
	return n, err
}

// charge takes the cost of a small piece of data from the sandbox's share: a web server and a page can send each byte for
// itself. While the sandbox rests, the pieces that follow become one.
func (f *Forwarder) charge(n int) {
	if n > 0 && n < backend.WholePiece {
		f.effort.Pace(backend.CostPiece)
	}
}

// refuse answers a request that is not sent on, and remembers why.
func (f *Forwarder) refuse(w http.ResponseWriter, address string, err error) {
	f.effort.Pace(backend.CostRefusal)
	f.mu.Lock()
	if _, known := f.failed[address]; known || len(f.failed) < forwardHosts {
		f.failed[address] = err
	}
	f.mu.Unlock()
	status := http.StatusBadGateway
	if _, blocked := errors.AsType[*BlockedError](err); blocked {
		status = http.StatusForbidden
	}
	w.Header().Set(refusedHeader, f.mark)
	w.WriteHeader(status)
}

// connect dials a host:port. The connection counts its bytes.
func (f *Forwarder) connect(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err == nil {
		err = webHost(host)
	}
	if err == nil {
		err = f.dial.WebPort(address)
	}
	if err != nil {
		return nil, err
	}
	up, err := f.dial.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	delete(f.failed, address)
	f.mu.Unlock()
	return up, nil
}

// webHost returns an error for a host that is neither a name nor an address without a zone. A zone is any text,
// and no web server needs one.
func webHost(host string) error {
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return nil
	}
	_, err := sandboxmcp.ParseHost(strings.ToLower(strings.TrimSuffix(host, ".")))
	return err
}

// hostPort returns the host:port of an http URL's host.
func hostPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "80")
}

// tunnel serves CONNECT.
func (f *Forwarder) tunnel(w http.ResponseWriter, r *http.Request) {
	up, err := f.connect(r.Context(), r.Host)
	if err != nil {
		f.refuse(w, r.Host, err)
		return
	}
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = up.Close()
		return
	}
	if !f.keep(up, down) {
		return
	}
	defer f.work.Done()
	defer f.drop(up, down)
	_ = down.SetDeadline(time.Now().Add(forwardFirst))
	if _, err = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	if first, err := buffered.Peek(4); err != nil || !carries(first) {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		f.copy(down, up, up)
		_ = down.Close()
	}()
	f.copy(up, down, buffered.Reader)
	closeWrite(up)
	<-back
}

// carries reports whether a tunnel begins with TLS or with the request of a WebSocket.
func carries(first []byte) bool {
	return bytes.HasPrefix(first, []byte{0x16, 3}) || bytes.Equal(first, []byte("GET "))
}

// keep registers a tunnel for Close. It returns false if the Forwarder is closed.
func (f *Forwarder) keep(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		if f.closed {
			_ = c.Close()
			continue
		}
		f.open[c] = struct{}{}
	}
	if !f.closed {
		f.work.Add(1)
	}
	return !f.closed
}

func (f *Forwarder) drop(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(f.open, c)
	}
}

// copy copies from a connection, which r reads, until its end, an idle time or the end of
// the Forwarder's bytes.
func (f *Forwarder) copy(to, from net.Conn, r io.Reader) {
	if b, ok := r.(*bufio.Reader); ok && b.Buffered() == 0 {
		r = from
	}
	p := make([]byte, 32<<10)
	for {
		_ = from.SetReadDeadline(time.Now().Add(forwardIdle))
		n, err := r.Read(p)
		if n > 0 {
			f.charge(n)
			if f.left.Add(-int64(n)) < 0 {
				err = fmt.Errorf("tunnel: %w", errBytes)
			} else {
				_ = to.SetWriteDeadline(time.Now().Add(forwardIdle))
				if _, failed := to.Write(p[:n]); failed != nil {
					err = failed
				}
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close()
				_ = from.Close()
			}
			return
		}
	}
}

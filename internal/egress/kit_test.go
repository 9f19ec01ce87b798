package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestMain looks for goroutines that are left. A connection of net/http that has refused a head rests for half a
// second before it is closed, which is as long as goleak waits.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const patience = 10 * time.Second

// rules is a policy of patterns. hold, where it is set, is asked for what none of
// them matches.
type rules struct {
	open   []sandboxmcp.Domain
	hold   func(context.Context, egress.Ask) egress.Verdict
	closed egress.Verdict // returned by Closed if it has a reason

	recourse egress.Recourse // of refusals

	mu    sync.Mutex
	asked []egress.Ask
}

func (r *rules) Decide(ctx context.Context, ask egress.Ask) egress.Verdict {
	r.mu.Lock()
	r.asked = append(r.asked, ask)
	r.mu.Unlock()
	for _, d := range r.open {
		if d.Match(ask.Host, ask.Port) {
			return egress.Verdict{Allowed: true, Rule: d.String()}
		}
	}
	if r.hold != nil {
		return r.hold(ctx, ask)
	}
	return egress.Verdict{Reason: "it is not open", Denial: sandboxmcp.DenialClosed, Recourse: r.recourse}
}

func (r *rules) Name(h sandboxmcp.Host) egress.Verdict {
	return egress.Verdict{Allowed: r.hold != nil || slices.ContainsFunc(r.open, func(d sandboxmcp.Domain) bool { return d.MatchHost(h) })}
}

func (r *rules) Closed() (egress.Verdict, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed, r.closed.Reason != ""
}

func domain(t testing.TB, s string) sandboxmcp.Domain {
	t.Helper()
	d, err := sandboxmcp.ParseDomain(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// queue is a listener in a sandbox: it accepts what a test puts into it.
type queue struct {
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

func newQueue() *queue { return &queue{in: make(chan net.Conn), done: make(chan struct{})} }

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.in:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error   { q.once.Do(func() { close(q.done) }); return nil }
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

// aimed is our end of a connection whose program asked for another address.
type aimed struct {
	*net.TCPConn
	at net.Addr
}

func (a *aimed) LocalAddr() net.Addr { return a.at }

// box is a sandbox's network without a sandbox.
type box struct {
	t     testing.TB
	link  *egress.Link
	net   *backend.Network
	dns   net.Addr
	rules *rules
	lis   net.Listener

	proxyOf *egress.Proxy
}

// setup says what a box is to have.
type setup struct {
	open    []string
	ports   []int
	sites   map[string]string // name:port to address
	resolve netip.AddrPort
	private []string
	caps    egress.Caps
	hold    func(context.Context, egress.Ask) egress.Verdict
}

func newBox(t testing.TB, s setup) *box {
	t.Helper()
	c := egress.Config{Resolve: map[sandboxmcp.Domain]netip.AddrPort{}, DNS: s.resolve, Caps: s.caps}
	for name, to := range s.sites {
		c.Resolve[domain(t, name)] = netip.MustParseAddrPort(to)
	}
	r := &rules{hold: s.hold}
	for _, o := range s.open {
		r.open = append(r.open, domain(t, o))
	}
	for _, p := range s.private {
		c.Private = append(c.Private, domain(t, p))
	}
	udp := must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	n := &backend.Network{
		DNS: []net.PacketConn{udp}, DNSTCP: []net.Listener{newQueue()}, Proxy: newQueue(),
		TCP: map[int]net.Listener{80: newQueue(), 443: newQueue()},
	}
	for _, p := range s.ports {
		n.TCP[p] = newQueue()
	}
	b := &box{t: t, net: n, dns: udp.LocalAddr(), rules: r, lis: listen(t), proxyOf: egress.New(c)}
	b.link = b.proxyOf.Attach(n, r)
	t.Cleanup(b.link.Close)
	return b
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// through makes a connection of a program to a listener of the sandbox. at is the
// address that it asked for.
func (b *box) through(l net.Listener, at string, port int) net.Conn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.lis.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	ours, err := b.lis.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	a := netip.AddrPortFrom(netip.MustParseAddr(at), uint16(port))
	l.(*queue).in <- &aimed{ours.(*net.TCPConn), net.TCPAddrFromAddrPort(a)}
	_ = c.SetDeadline(time.Now().Add(patience))
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// to connects to a port of an address.
func (b *box) to(at string, port int) net.Conn {
	b.t.Helper()
	return b.through(b.net.TCP[port], at, port)
}

// toName looks the name up and connects to what it is told.
func (b *box) toName(name string, port int) net.Conn {
	b.t.Helper()
	return b.to(b.lookup(name), port)
}

func (b *box) proxy() net.Conn {
	b.t.Helper()
	return b.through(b.net.Proxy, "127.0.0.1", backend.ProxyPort)
}

// lookup asks the sandbox's DNS for an address, which has to be there.
func (b *box) lookup(name string) string {
	b.t.Helper()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", b.dns.String())
	}}
	all, err := r.LookupHost(b.t.Context(), name+".")
	if err != nil || len(all) != 1 {
		b.t.Fatalf("look up %s: got %v, %v, want one address", name, all, err)
	}
	return all[0]
}

// say sends text and returns all that comes back until the end, and whether that
// was a clean end.
func say(c net.Conn, text string) (string, error) {
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	all, err := io.ReadAll(c)
	return string(all), err
}

// wantDenied demands that the report has a denial of the host and port whose
// reason holds the words.
func (b *box) wantDenied(host string, port int, words string) {
	b.t.Helper()
	var r egress.Report
	if !testkit.Within(b.t, patience, func() bool {
		r = b.link.Report(false)
		return slices.ContainsFunc(r.Denied, func(e egress.Entry) bool {
			return e.Host == host && e.Port == port && e.Times > 0 && strings.Contains(e.Reason, words)
		})
	}) {
		b.t.Errorf("denied: got %+v, want %s:%d with a reason that holds %q", r.Denied, host, port, words)
	}
}

// wantAllowed demands exactly these places among those that were let through.
func (b *box) wantAllowed(want ...string) {
	b.t.Helper()
	got := b.link.Report(false).Network().Allowed
	if !slices.Equal(got, append([]string{}, want...)) {
		b.t.Errorf("allowed: got %v, want %v", got, want)
	}
}

// site is a server of HTTP that remembers what it was asked.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	hits []string // method, host, target
	conn int
	head http.Header // of the last request
	body string      // likewise
}

func newSite(t testing.TB, secure bool) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.hits = append(s.hits, r.Method+" "+r.Host+" "+r.RequestURI)
		s.head, s.body = r.Header.Clone(), string(body)
		s.mu.Unlock()
		if to, ok := strings.CutPrefix(r.RequestURI, "/redirect/"); ok {
			http.Redirect(w, r, "http://"+to+"/", http.StatusFound)
			return
		}
		w.Header().Set("X-Site", "yes")
		_, _ = io.WriteString(w, "hello from "+r.Host)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // handshakes are broken off on purpose
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			s.mu.Lock()
			s.conn++
			s.mu.Unlock()
		}
	}
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *site) addr() string { return s.Listener.Addr().String() }

func (s *site) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.hits)
}

func (s *site) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// world is two hosts, of which api.kit.test is open.
type world struct {
	*box
	api, apiTLS, other, otherTLS *site
}

func newWorld(t testing.TB, open ...string) *world {
	t.Helper()
	w := &world{api: newSite(t, false), apiTLS: newSite(t, true), other: newSite(t, false), otherTLS: newSite(t, true)}
	s := setup{open: []string{"api.kit.test"}, sites: map[string]string{}, ports: []int{8080}, caps: egress.Caps{PerSecond: 1e6, Questions: 1e6}}
	if len(open) > 0 {
		s.open = open
	}
	for _, name := range []string{"api.kit.test", "other.kit.test", "xapi.kit.test", "api.kit.test.evil.test", "a.api.kit.test", "kit.test"} {
		plain, secure := w.other, w.otherTLS
		if name == "api.kit.test" {
			plain, secure = w.api, w.apiTLS
		}
		s.sites[name+":80"], s.sites[name+":443"], s.sites[name+":8080"] = plain.addr(), secure.addr(), plain.addr()
	}
	w.box = newBox(t, s)
	return w
}

// quiet demands that nobody has reached what is not open.
func (w *world) quiet() {
	w.t.Helper()
	if n := w.other.connections() + w.otherTLS.connections(); n != 0 {
		w.t.Errorf("connections to what is not open: got %d, want 0", n)
	}
}

// shake does a TLS handshake over a connection, without looking at certificates.
func shake(c net.Conn, name string) (*tls.Conn, error) {
	tc := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	return tc, tc.Handshake()
}

// get asks over a connection for a page, and returns the status and the body.
func get(t testing.TB, c net.Conn, host, target string) (int, string) {
	t.Helper()
	if _, err := io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	return res.StatusCode, string(body)
}

var errNothing = errors.New("nothing was said")

package egress

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// minute is a clock that passes only in rests, and that calls over after one.
type minute struct {
	mu     sync.Mutex
	rested time.Duration
	over   func()
}

func (m *minute) effort() *backend.Effort {
	begin := time.Unix(1, 0)
	return backend.NewEffortAt(func() time.Time {
		m.mu.Lock()
		defer m.mu.Unlock()
		return begin.Add(m.rested)
	}, func(d time.Duration, _ <-chan struct{}) {
		m.mu.Lock()
		m.rested += d
		over := m.rested > time.Minute
		m.mu.Unlock()
		if over {
			m.over()
		}
	})
}

// most is how many items of a cost a sandbox may have in the minute.
func most(cost time.Duration) int {
	return int((backend.EffortBurst+time.Duration(backend.EffortShare*float64(time.Minute)))/cost) + 100
}

// flood is a socket on which a question is always waiting.
type flood struct {
	net.PacketConn
	question []byte
	once     sync.Once
	closed   chan struct{}
	reads    int
}

func (f *flood) ReadFrom(p []byte) (int, net.Addr, error) {
	select {
	case <-f.closed:
		return 0, nil, net.ErrClosed
	default:
	}
	f.reads++
	return copy(p, f.question), &net.UDPAddr{}, nil
}
func (f *flood) WriteTo(p []byte, _ net.Addr) (int, error) { return len(p), nil }
func (f *flood) Close() error                              { f.once.Do(func() { close(f.closed) }); return nil }

// TestAFloodOfQuestionsRests: also of those that are refused because there were
// too many in their second.
func TestAFloodOfQuestionsRests(t *testing.T) {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("closed.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	text, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{question: text, closed: make(chan struct{})}
	m := &minute{over: func() { _ = f.Close() }}
	l := newLink(New(Config{}), one{}, m.effort())
	defer l.Close()
	l.serveUDP(f)
	if n := most(backend.CostQuestion); f.reads > n {
		t.Errorf("%d questions were read in a minute, want at most %d", f.reads, n)
	}
}

// crowd is a listener on which a connection is always waiting.
type crowd struct {
	net.Listener
	once    sync.Once
	closed  chan struct{}
	accepts int
}

func (c *crowd) Accept() (net.Conn, error) {
	select {
	case <-c.closed:
		return nil, net.ErrClosed
	default:
	}
	c.accepts++
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	return ours, nil
}
func (c *crowd) Close() error { c.once.Do(func() { close(c.closed) }); return nil }

// TestAFloodOfConnectionsRests: of those that are served and of those that are
// refused at once.
func TestAFloodOfConnectionsRests(t *testing.T) {
	for name, c := range map[string]struct {
		caps Caps
		cost time.Duration
	}{
		"served":  {Caps{PerSecond: 1e9, Conns: 1 << 20, All: 1 << 20}, backend.CostConnection},
		"refused": {Caps{PerSecond: 1}, backend.CostRefusal},
	} {
		t.Run(name, func(t *testing.T) {
			s := &crowd{closed: make(chan struct{})}
			m := &minute{over: func() { _ = s.Close() }}
			l := newLink(New(Config{Caps: c.caps}), one{}, m.effort())
			defer l.Close()
			l.accept(s, 80, func(net.Conn) {})
			if n := most(c.cost); s.accepts > n {
				t.Errorf("%d connections were accepted in a minute, want at most %d", s.accepts, n)
			}
		})
	}
}

// TestHeadsAreCharged: a host can make the server parse long heads. The sandbox that asks for them pays for it.
func TestHeadsAreCharged(t *testing.T) {
	long := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: " + strings.Repeat("word, ", 30_000) + "close\r\n\r\n"
	for name, c := range map[string]struct {
		request, answer string
		bytes           int
		port            int
	}{
		"a request":                 {"GET / HTTP/1.1\r\nHost: closed.test\r\nConnection: " + strings.Repeat("word, ", 5_000) + "\r\n\r\n", "", 30_000, 80},
		"a head that is no request": {"GET / HTTP/1.1\r\n" + strings.Repeat("word\r\n", 5_000) + "\r\n", "", 30_000, 80},
		"an answer":                 {"GET / HTTP/1.1\r\nHost: open.test\r\n\r\n", long, len(long), 80},
		"an answer without an end":  {"GET / HTTP/1.1\r\nHost: open.test\r\n\r\n", long[:len(long)-2], len(long) - 2, 80},
		"not a ClientHello":         {"\x16\x03\x01\x3f\xff" + strings.Repeat("\x00", 16_383), "", 16_388, 443},
	} {
		t.Run(name, func(t *testing.T) {
			host, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			go func() {
				if up, err := host.Accept(); err == nil {
					_, _ = bufio.NewReader(up).ReadString('\n')
					_, _ = io.WriteString(up, c.answer)
					_ = up.Close()
				}
			}()
			e := (&minute{}).effort()
			to := netip.MustParseAddrPort(host.Addr().String())
			l := newLink(New(Config{Resolve: map[sandboxmcp.Domain]netip.AddrPort{{Host: "open.test"}: to}}), one{open: sandboxmcp.Domain{Host: "open.test"}}, e)
			defer l.Close()
			ours, theirs := net.Pipe()
			go func() {
				_, _ = io.WriteString(theirs, c.request)
				_, _ = io.Copy(io.Discard, theirs)
			}()
			l.servePort(ours, c.port)
			_ = ours.Close()
			if e.Spend(backend.EffortBurst-time.Duration(c.bytes)*backend.CostHeadByte/2) == 0 {
				t.Errorf("a head of %d bytes cost nothing", c.bytes)
			}
		})
	}
}

// drip is a connection from a program that sends single bytes.
type drip struct {
	net.Conn
	text  string // then zero bytes
	at    int
	reads *int
}

func (d *drip) Read(p []byte) (int, error) {
	p[0] = 0
	if d.at < len(d.text) {
		p[0] = d.text[d.at]
	}
	d.at++
	*d.reads++
	return 1, nil
}

func (*drip) Write(p []byte) (int, error)      { return len(p), nil }
func (*drip) Close() error                     { return nil }
func (*drip) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(8, 8, 8, 8), Port: 80} }
func (*drip) SetDeadline(time.Time) error      { return nil }
func (*drip) SetReadDeadline(time.Time) error  { return nil }
func (*drip) SetWriteDeadline(time.Time) error { return nil }

// TestADripRests: single bytes that are read before a connection is refused, and after.
func TestADripRests(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		serve func(*Link, net.Conn)
	}{
		"proxy":  {"GET /" + strings.Repeat("a", headBytes), (*Link).serveProxy},
		"http":   {"\r\n", func(l *Link, c net.Conn) { l.servePort(c, 80) }},
		"tls":    {"\x16\x03\x01\x3f\xff", func(l *Link, c net.Conn) { l.servePort(c, 443) }},
		"dns":    {"\x0f\xff", (*Link).serveDNS},
		"closed": {"GET / HTTP/1.1\r\nHost: closed.test\r\n\r\n", func(l *Link, c net.Conn) { l.servePort(c, 80) }},
	} {
		t.Run(name, func(t *testing.T) {
			over, reads := false, 0
			m := &minute{over: func() { over = true }}
			l := newLink(New(Config{}), one{}, m.effort())
			defer l.Close()
			most := most(backend.CostLateRead) + 1<<19 // the last connection may end
			for !over && reads <= most {
				c.serve(l, &drip{text: c.text, reads: &reads})
			}
			if reads > most {
				t.Errorf("more than %d single bytes were read in a minute", most)
			}
		})
	}
}

// away is a connection to an address of another machine.
type away struct{ *net.TCPConn }

func (away) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(8, 8, 8, 8), Port: 80} }

// TestAnAnswerEndsWhatIsStillSent: a program that has got an answer before the end of its request, and neither goes on nor
// closes, does not keep the connection for as long as one may be idle.
func TestAnAnswerEndsWhatIsStillSent(t *testing.T) {
	listen := func() *net.TCPListener {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	host, door := listen(), listen()
	go func() {
		if up, err := host.Accept(); err == nil {
			_, _ = io.WriteString(up, "no HTTP\r\n\r\n")
			_ = up.Close()
		}
	}()
	l := newLink(New(Config{Caps: Caps{Idle: time.Hour}, Resolve: map[sandboxmcp.Domain]netip.AddrPort{{Host: "open.test"}: netip.MustParseAddrPort(host.Addr().String())}}), one{open: sandboxmcp.Domain{Host: "open.test"}}, nil)
	defer l.Close()
	program, err := net.Dial("tcp", door.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	c, err := door.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(20*time.Second, func() { _ = program.Close() })
	go func() {
		_, _ = io.WriteString(program, "POST / HTTP/1.1\r\nHost: open.test\r\nContent-Length: 10\r\n\r\nbegun")
		_, _ = io.Copy(io.Discard, program) // until the answer has ended
		_, _ = io.WriteString(program, "!")
	}()
	l.servePort(away{c}, 80)
	if !over.Stop() {
		t.Error("the connection has not ended before the program closed it")
	}
}

// TestDripsOfABrowserRest: of a tunnel, and of the answer to a request.
func TestDripsOfABrowserRest(t *testing.T) {
	for name, copied := range map[string]func(*Forwarder, net.Conn){
		"a tunnel":  func(f *Forwarder, from net.Conn) { f.copy(from, from, from) },
		"an answer": func(f *Forwarder, from net.Conn) { _, _ = io.Copy(io.Discard, &metered{from, f}) },
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			f := &Forwarder{}
			f.left.Store(1 << 20)
			m := &minute{over: func() { f.left.Store(0) }}
			f.effort = m.effort()
			copied(f, &drip{reads: &reads})
			if n := most(backend.CostPiece); reads > n {
				t.Errorf("%d pieces were read in a minute, want at most %d", reads, n)
			}
		})
	}
}

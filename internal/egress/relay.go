package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// chunk is how many bytes are copied before they are counted. Between two plain TCP
// connections the kernel copies them (splice).
const chunk = 4 << 20

var (
	errBytes = errors.New("the run has carried as many bytes as it may")
	errIdle  = errors.New("the connection was idle for too long")
)

// flow counts the bytes of one connection in both directions.
type flow struct {
	ledger *ledger
	max    int64
	idle   time.Duration
	moved  atomic.Int64
}

func (l *Link) newFlow() *flow {
	return &flow{ledger: l.ledger, max: l.proxy.caps.Bytes, idle: l.proxy.caps.Idle}
}

func (f *flow) count(n int64) {
	f.moved.Add(n)
	f.ledger.add(n)
}

// copy copies from src to dst: n bytes, or until end of file if n is negative. It
// returns errIdle if neither direction carries bytes for the idle time.
func (f *flow) copy(dst io.Writer, src net.Conn, n int64) error {
	seen, still := int64(-1), 0
	for n != 0 {
		want := min(chunk, f.ledger.left(f.max))
		if want == 0 {
			return errBytes
		}
		if n > 0 {
			want = min(want, n)
		}
		if err := src.SetReadDeadline(time.Now().Add(f.idle / 2)); err != nil {
			return err
		}
		lr := &io.LimitedReader{R: src, N: want}
		got, err := io.Copy(dst, lr)
		f.count(got)
		if n > 0 {
			n -= got
		}
		switch total := f.moved.Load(); {
		case err == nil && lr.N > 0:
			if n > 0 {
				return io.ErrUnexpectedEOF
			}
			return nil
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case total != seen:
			seen, still = total, 0
		case still > 0:
			return errIdle
		default:
			still++
		}
	}
	return nil
}

// reader returns a reader of r that counts bytes, for data that splice cannot copy.
func (f *flow) reader(r io.Reader) io.Reader { return &counted{f, r} }

type counted struct {
	f *flow
	r io.Reader
}

func (c *counted) Read(p []byte) (int, error) {
	left := c.f.ledger.left(c.f.max)
	if left == 0 {
		return 0, errBytes
	}
	n, err := c.r.Read(p[:min(int64(len(p)), left)])
	c.f.count(int64(n))
	return n, err
}

// patient is a connection with a time limit for each single read. See allow. If a head comes in many pieces, its further
// reads cost the sandbox a part of the server's time.
type patient struct {
	net.Conn

	effort *backend.Effort // nil: reads cost nothing

	mu   sync.Mutex
	wait time.Duration // 0: the deadline of the connection holds
	over bool          // stop was called

	reads int // while the deadline of the connection holds
}

// usualReads is how many reads the cost of a connection includes. Most programs send a head at once, and some line by line.
const usualReads = 8

func (p *patient) Read(b []byte) (int, error) {
	if err := p.begin(); err != nil {
		return 0, err
	}
	n, err := p.Conn.Read(b)
	if n > 0 && p.isLate() {
		p.effort.Pace(backend.CostLateRead)
	}
	return n, err
}

// isLate counts a read, and reports whether it is one of many of a head.
func (p *patient) isLate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait == 0 {
		p.reads++
	}
	return p.wait == 0 && p.reads > usualReads
}

func (p *patient) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over:
		return os.ErrDeadlineExceeded
	case p.wait > 0:
		return p.SetReadDeadline(time.Now().Add(p.wait))
	default:
		return nil
	}
}

// allow sets how long each later read may take; 0: as long as the connection's deadline.
func (p *patient) allow(wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait = wait
}

// stop makes the current read and every later one fail with os.ErrDeadlineExceeded.
func (p *patient) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	_ = p.SetReadDeadline(time.Unix(1, 0))
}

func closeWrite(c net.Conn) {
	if t, ok := c.(interface{ CloseWrite() error }); ok {
		_ = t.CloseWrite()
	}
}

// linger closes the connection so that the bytes written last arrive. A plain close with
// unread input would send a reset, and the peer would discard them.
func (v *visit) linger() {
	v.in.stop() // another goroutine may be reading, and would give the connection a later deadline
	closeWrite(v.c)
	_ = v.c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	_, _ = io.CopyN(io.Discard, &patient{Conn: v.c, effort: v.l.effort}, 256<<10)
	_ = v.c.Close()
}

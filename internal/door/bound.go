package door

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of a request and its answer.
const (
	defaultBody = 128 << 20 // bytes of a body; an upload of 50 MB is about 70 MB of base64
	freeBody    = 1 << 20   // bytes of a body that are not counted
	allBodies   = 256 << 20 // bytes of all counted bodies that are held at the same time
	piece       = 64 << 10  // bytes of an answer that are written at once

	restTime  = time.Second      // time for the body of a refused request
	stallTime = 10 * time.Second // time without a byte of the body
	pieceTime = 30 * time.Second // time that an answer may wait for its client, beside slowest
	slowest   = 64 << 10         // bytes of a body or an answer per second, on average
)

// bodies counts the bytes of large bodies that are held.
type bodies struct{ held atomic.Int64 }

func (b *bodies) take(n int64) bool {
	if b.held.Add(n) <= allBodies {
		return true
	}
	b.held.Add(-n)
	return false
}

// bound puts bounds on the body and the answer of a request. The caller calls done when the
// request was answered.
func (d *Door) bound(w http.ResponseWriter, r *http.Request) (out *writer, done func(), err error) {
	control := http.NewResponseController(w)
	out = &writer{ResponseWriter: w, control: control}
	if r.Body == nil || r.Body == http.NoBody {
		return out, func() {}, nil
	}
	if r.ContentLength > d.MaxBody {
		return nil, nil, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the body has %d bytes, above the limit of %d bytes", r.ContentLength, d.MaxBody).
			WithHint("send less").With("limit", d.MaxBody)
	}
	b := &body{ReadCloser: http.MaxBytesReader(w, r.Body, d.MaxBody), all: &d.bodies, control: control, begun: time.Now(), free: freeBody}
	if !b.count(r.ContentLength) {
		return nil, nil, tooManyBodies()
	}
	b.deadline()
	r.Body = b
	return out, b.release, nil
}

func tooManyBodies() *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "requests with %d MiB are being read", allBodies>>20).
		WithHint("send large requests one after the other").With(retryAfter, 2)
}

// body is the body of a request. A client that sends nothing, or too slowly, is
// disconnected.
type body struct {
	io.ReadCloser
	all     *bodies
	control *http.ResponseController
	begun   time.Time
	read    int64
	free    int64 // bytes that may still be read without being counted
	counted int64
	until   time.Time // the deadline in force
	ended   bool
}

// count counts n bytes that will be read. It returns false if too many are held.
func (b *body) count(n int64) bool {
	more := n - b.free
	if more <= 0 {
		return true
	}
	if !b.all.take(more) {
		return false
	}
	b.counted += more
	b.free += more
	return true
}

// errTooMany ends a body of unknown length that does not fit beside the others.
var errTooMany = errors.New("too many large requests are being read")

// Read reads, and sets the time for the next bytes.
func (b *body) Read(p []byte) (int, error) {
	b.deadline()
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if b.read > b.free && !b.count(b.read+freeBody) {
		return n, errTooMany
	}
	if errors.Is(err, io.EOF) && !b.ended {
		// net/http now waits for the end of the connection. A deadline would be taken for it.
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// deadline sets the time until which the next byte has to arrive.
func (b *body) deadline() {
	if b.ended {
		return
	}
	next := time.Now().Add(stallTime)
	if last := b.begun.Add(2*stallTime + time.Duration(b.read/slowest)*time.Second); last.Before(next) {
		next = last
	}
	if near(next, b.until) {
		return
	}
	b.until = next
	_ = b.control.SetReadDeadline(next)
}

// exactly is how exact deadlines are. A nearer one is not set again: a new timer may wake a thread.
const exactly = time.Second / 4

func near(a, b time.Time) bool { return a.Sub(b).Abs() < exactly }

// release gives back what was counted.
func (b *body) release() { b.all.held.Add(-b.counted) }

// writer is the answer of a request. A client that receives too slowly is disconnected.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	sent    int64
	waited  time.Duration // for the client
	until   time.Time     // the deadline in force; zero: that of an earlier request
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes in pieces, each with a deadline of its own.
func (w *writer) Write(p []byte) (n int, err error) {
	for {
		var part int
		err = w.send(func() error {
			var failed error
			part, failed = w.ResponseWriter.Write(p[n:min(len(p), n+piece)])
			return failed
		})
		n += part
		w.sent += int64(part)
		if err != nil || n >= len(p) {
			return n, err
		}
	}
}

// FlushError sends what was written.
func (w *writer) FlushError() error { return w.send(w.control.Flush) }

// send calls write with the time that is left for the client.
func (w *writer) send(write func() error) error {
	begun := time.Now()
	w.within(pieceTime + time.Duration(w.sent/slowest)*time.Second - w.waited)
	err := write()
	w.waited += time.Since(begun)
	return err
}

// within sets the deadline by which the client has to read the next bytes.
func (w *writer) within(d time.Duration) {
	next := time.Now().Add(d)
	if near(next, w.until) {
		return
	}
	w.until = next
	_ = w.control.SetWriteDeadline(next) // fails if the connection has no deadlines
}

package door

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
	"github.com/sandboxmcp/sandboxmcp/internal/share"
)

// Bounds of a request and its answer.
const (
	defaultBody = 128 << 20 // bytes of a body; an upload of 50 MB is about 70 MB of base64
	freeBody    = 1 << 20   // bytes of a body that are not counted
	allBodies   = 256 << 20 // bytes of all counted bodies that are held at the same time
	step        = 1 << 20   // bytes that are counted at once
	piece       = 64 << 10  // bytes of an answer that are written at once

	restTime  = time.Second      // time for the body of a refused request
	dropTime  = 10 * time.Second // the same if the request is refused for its size alone
	patience  = 5 * time.Second  // time to send a body while other callers wait for room
	roomTime  = 2 * patience     // time that a body waits for room
	stallTime = 10 * time.Second // time without a byte of the body
	pieceTime = 30 * time.Second // time that an answer may wait for its client, beside slowest
	slowest   = 64 << 10         // bytes of a body or an answer per second, on average
)

// bound puts bounds on the body and the answer of a request. The caller calls done when the
// request was answered.
//
// Of a large body what was read is counted. What a caller announces counts for its own share alone.
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
	b := &body{ReadCloser: http.MaxBytesReader(w, r.Body, d.MaxBody), ctx: r.Context(), control: control, begun: time.Now(), free: freeBody, length: r.ContentLength}
	ask := share.Ask{Caller: listen.Client(r.RemoteAddr), Size: max(r.ContentLength-freeBody, 0), End: func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }}
	if id, ok := IdentityOf(r.Context()); ok {
		ask.Caller, ask.Alone = Principal(id), Alone(id)
	}
	var full *share.Full
	if ask.Size == 0 && r.ContentLength >= 0 {
		b.deadline()
		r.Body = b
		return out, func() {}, nil
	}
	if b.place, full = d.bodies.Claim(ask); full != nil {
		return nil, nil, tooManyBodies(full.Own)
	}
	out.body = b
	b.deadline()
	r.Body = b
	return out, b.place.Leave, nil
}

func tooManyBodies(own bool) *sandboxmcp.Error {
	text := "large requests are in progress; with this one they would have more than %d MiB"
	if own {
		text = "large requests of this caller are in progress; with this one they would have more of %d MiB than is left for others"
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, text, allBodies>>20).
		WithHint("send large requests one after the other").With(retryAfter, 2)
}

// body is the body of a request. A client that sends nothing, or too slowly, is
// disconnected.
type body struct {
	io.ReadCloser
	place   *share.Place    // nil: the body is small
	ctx     context.Context //nolint:containedctx // of the request
	control *http.ResponseController
	begun   time.Time
	read    int64
	length  int64     // that was announced; negative: none was
	free    int64     // bytes that may still be read without being counted
	until   time.Time // the deadline in force
	ended   bool
	refused bool // there was no room for all of it
}

// errTooMany ends a body that does not fit beside the others.
var errTooMany = errors.New("too many large requests are being read")

// Read reads, and sets the time for the next bytes.
func (b *body) Read(p []byte) (int, error) {
	if b.refused {
		return 0, errTooMany
	}
	b.deadline()
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if b.place != nil {
		if more := b.read - b.free; more > 0 && !b.count(more) || b.place.Ended() && !b.ended {
			b.refused = true
			return n, errTooMany
		}
	}
	if errors.Is(err, io.EOF) && !b.ended {
		// net/http now waits for the end of the connection. A deadline would be taken for it.
		b.ended = true
		if b.place != nil {
			b.place.Begin(nil)
		}
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// count counts more bytes that were read, and some that follow. It waits for room, which is not the client's time.
func (b *body) count(more int64) bool {
	began := time.Now()
	if next := b.length - b.free; b.length < 0 || next > step {
		more = max(more, step)
	} else {
		more = max(more, next)
	}
	if !b.place.Hold(b.ctx, more, roomTime) {
		return false
	}
	b.free += more
	b.begun = b.begun.Add(time.Since(began))
	return true
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

// writer is the answer of a request. A client that receives too slowly is disconnected.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	sent    int64
	waited  time.Duration // for the client
	until   time.Time     // the deadline in force; zero: that of an earlier request
	begun   bool          // an answer was begun
	body    *body         // of the request, if it is large
}

// refused reports whether the door answers the request, whose handler did not get all of the body.
func (w *writer) refused() bool { return w.body != nil && w.body.refused && !w.begun }

// WriteHeader writes the head of the answer.
func (w *writer) WriteHeader(status int) {
	if w.refused() {
		return
	}
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes in pieces, each with a deadline of its own.
func (w *writer) Write(p []byte) (n int, err error) {
	if w.refused() {
		return len(p), nil
	}
	w.begun = true
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
func (w *writer) FlushError() error {
	if w.refused() {
		return nil
	}
	w.begun = true
	return w.send(w.control.Flush)
}

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

// refuseBody refuses a request whose body does not fit. It drops what the client still sends, because a
// client that sends would not see the answer.
func (d *Door) refuseBody(w http.ResponseWriter, r *http.Request, sent io.Reader, err error) {
	d.refuse(w, r, err)
	control := http.NewResponseController(w)
	if control.Flush() != nil || r.Header.Get("Expect") != "" {
		return
	}
	_ = control.SetReadDeadline(time.Now().Add(dropTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(sent, d.MaxBody)) // fails if the client is too slow
}

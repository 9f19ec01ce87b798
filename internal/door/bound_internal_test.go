package door

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a response whose connection has the deadlines that are set.
type wire struct {
	http.ResponseWriter
	reading, writing time.Time
	write            func(p []byte) (int, error)
}

func (w *wire) SetReadDeadline(t time.Time) error  { w.reading = t; return nil }
func (w *wire) SetWriteDeadline(t time.Time) error { w.writing = t; return nil }
func (w *wire) Write(p []byte) (int, error)        { return w.write(p) }
func (w *wire) FlushError() error                  { return nil }

// drip is a body that gives a byte after each pause, until the deadline of its connection.
type drip struct {
	w     *wire
	pause time.Duration
	left  int
}

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	next := time.Now().Add(d.pause)
	if next.After(d.w.reading) {
		time.Sleep(time.Until(d.w.reading))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(d.pause)
	d.left--
	p[0] = 'x'
	return 1, nil
}

func (d *drip) Close() error { return nil }

// TestDeadlinesOfBodies: a body may take its time, but neither stop nor drip.
func TestDeadlinesOfBodies(t *testing.T) {
	for _, c := range []struct {
		name  string
		pause time.Duration
		bytes int
		ok    bool
	}{
		{"a quick one", time.Millisecond, 1000, true},
		{"one that stops", stallTime + time.Second, 2, false},
		{"one that drips", stallTime - time.Second, 1000, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{ResponseWriter: httptest.NewRecorder()}
			d := &Door{Config: Config{MaxBody: defaultBody}}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", &drip{w, c.pause, c.bytes})
			begun := time.Now()
			_, done, err := d.bound(w, r)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, r.Body)
			done()
			if ok := err == nil && n == int64(c.bytes); ok != c.ok {
				t.Errorf("%s: got %d bytes and %v, want all %v", c.name, n, err, c.ok)
			}
			if took := time.Since(begun); !c.ok && took > time.Minute {
				t.Errorf("%s: got its end after %v, want it within a minute", c.name, took)
			}
			if c.ok && !w.reading.IsZero() {
				t.Errorf("%s: got the deadline %v after the end, want none: net/http would take it for a lost client", c.name, w.reading)
			}
		})
	}
}

// TestAnswersThatNobodyReads: a client that receives nothing, or a little at a time, is given
// up; one that is slow but goes on is not.
func TestAnswersThatNobodyReads(t *testing.T) {
	for _, c := range []struct {
		name string
		wait time.Duration // for each piece
		ok   bool
	}{
		{"a quick client", time.Millisecond, true},
		{"a slow one", 500 * time.Millisecond, true},
		{"one that reads now and then", 20 * time.Second, false},
		{"one that reads nothing", time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{ResponseWriter: httptest.NewRecorder()}
			w.write = func(p []byte) (int, error) {
				if time.Now().Add(c.wait).After(w.writing) {
					time.Sleep(time.Until(w.writing))
					return 0, os.ErrDeadlineExceeded
				}
				time.Sleep(c.wait)
				return len(p), nil
			}
			out := &writer{ResponseWriter: w, control: http.NewResponseController(w)}
			begun := time.Now()
			n, err := out.Write(make([]byte, 100*piece))
			if ok := err == nil && n == 100*piece; ok != c.ok {
				t.Errorf("%s: got %d bytes and %v, want all %v", c.name, n, err, c.ok)
			}
			if took := time.Since(begun); !c.ok && took > 2*pieceTime {
				t.Errorf("%s: got its end after %v, want it within %v", c.name, took, 2*pieceTime)
			}
		})
	}
}

// TestLargeBodiesTogether: what all callers send at the same time is bounded, and room comes
// back.
func TestLargeBodiesTogether(t *testing.T) {
	d := &Door{Config: Config{MaxBody: defaultBody}}
	begin := func(length int64) (*http.Request, func(), error) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
		r.ContentLength = length
		_, done, err := d.bound(&wire{ResponseWriter: httptest.NewRecorder()}, r)
		return r, done, err
	}
	_, first, err1 := begin(defaultBody)
	_, second, err2 := begin(defaultBody)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, _, err := begin(defaultBody); err == nil {
		t.Error("got a third large body, want it refused")
	}
	small, done, err := begin(100)
	if err != nil {
		t.Fatalf("a small body beside large ones: got %v, want it read", err)
	}
	if _, err = io.ReadAll(small.Body); err != nil {
		t.Errorf("a small body: got %v, want it read", err)
	}
	done()
	unknown, done, err := begin(-1)
	if err != nil {
		t.Fatal(err)
	}
	unknown.Body.(*body).ReadCloser = io.NopCloser(strings.NewReader(strings.Repeat("x", 4<<20)))
	if n, err := io.Copy(io.Discard, unknown.Body); !errors.Is(err, errTooMany) {
		t.Errorf("a body of unknown length: got %d bytes and %v, want it to be ended", n, err)
	}
	done()
	first()
	second()
	if n := d.bodies.held.Load(); n != 0 {
		t.Errorf("got %d bytes held at the end, want 0", n)
	}
}

package door

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/share"
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
			d := &Door{Config: Config{MaxBody: defaultBody}, bodies: share.New(allBodies, patience)}
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
	d := &Door{Config: Config{MaxBody: defaultBody}, bodies: share.New(allBodies, patience)}
	begin := func(length int64) (*http.Request, func(), error) {
		r := httptest.NewRequestWithContext(WithIdentity(t.Context(), sandboxmcp.Identity{Actor: Actor}), http.MethodPost, "/", strings.NewReader("{}"))
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
	second()
	unknown, done, err := begin(-1)
	if err != nil {
		t.Fatal(err)
	}
	unknown.Body.(*body).ReadCloser = io.NopCloser(strings.NewReader(strings.Repeat("x", defaultBody+4<<20)))
	if n, err := io.Copy(io.Discard, unknown.Body); !errors.Is(err, errTooMany) {
		t.Errorf("a body of unknown length: got %d bytes and %v, want it to be ended", n, err)
	}
	done()
	first()
	if n := d.bodies.Held(); n != 0 {
		t.Errorf("got %d bytes held at the end, want 0", n)
	}
}

// TestBodiesOfOneCallerLeaveRoom: what one caller only announces keeps no large request of another out. A
// refused request gets its answer, although its client first sends all of it.
func TestBodiesOfOneCallerLeaveRoom(t *testing.T) {
	read := make(chan struct{}, 8)
	d := New(Config{Own: "home", Rules: Rules{Keys: []Key{
		{Secret: sandboxmcp.NewSecret("ka"), Namespaces: []sandboxmcp.Namespace{"a"}},
		{Secret: sandboxmcp.NewSecret("kb"), Namespaces: []sandboxmcp.Namespace{"b"}},
		{Secret: sandboxmcp.NewSecret("kc"), Namespaces: []sandboxmcp.Namespace{"c"}},
	}}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-API-Key") != "kb" {
			read <- struct{}{}
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
	}))
	s := httptest.NewServer(d)
	t.Cleanup(s.Close) // after the connections, which it would wait for
	send := func(key, announced string, sent io.Reader) *bufio.Reader {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute)) // bounds a test that fails
		if _, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nContent-Type: application/json\r\n%s\r\n\r\n", s.Listener.Addr(), key, announced); err != nil {
			t.Fatal(err)
		}
		if _, err = io.Copy(c, sent); err != nil {
			t.Fatalf("key %s: a body with %s was cut off: %v", key, announced, err)
		}
		return bufio.NewReader(c)
	}
	answer := func(in *bufio.Reader) (status int, text string) {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("got no answer: %v", err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if res.ContentLength < 0 {
			t.Errorf("got the answer %s without a length, want one: its client would wait until all of its request was read", body)
		}
		return res.StatusCode, string(body)
	}
	const large = 20 << 20
	all := func() io.Reader { return strings.NewReader(strings.Repeat("x", large)) }
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	for _, key := range []string{"ka", "kc"} {
		send(key, length(defaultBody-5), strings.NewReader("{"))
		<-read
	}
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", large, strings.Repeat("x", large))
	if status, text := answer(send("ka", "Transfer-Encoding: chunked", strings.NewReader(chunked))); status != http.StatusTooManyRequests {
		t.Errorf("a body of the same caller that announces nothing: got %d %s, want 429", status, text)
	}
	if status, text := answer(send("ka", length(large+defaultBody/2), all())); status != http.StatusTooManyRequests {
		t.Errorf("one more of the same caller: got %d %s, want 429", status, text)
	}
	if status, text := answer(send("kb", length(large), all())); status != http.StatusOK || text != strconv.Itoa(large) {
		t.Errorf("a body of another caller: got %d %s, want all of it read", status, text)
	}
}

// counting is a wire that counts how often deadlines are set.
type counting struct {
	wire

	reads, writes int
}

func (c *counting) SetReadDeadline(t time.Time) error { c.reads++; return c.wire.SetReadDeadline(t) }

func (c *counting) SetWriteDeadline(t time.Time) error { c.writes++; return c.wire.SetWriteDeadline(t) }

// TestFewDeadlines: a small request and its answer have each one deadline, which is set once, and that
// of the body ends with it. A request that waits long for its answer gets a new one.
func TestFewDeadlines(t *testing.T) {
	for _, c := range []struct {
		rest   time.Duration
		writes int
	}{{0, 1}, {time.Minute, 2}} {
		synctest.Test(t, func(t *testing.T) {
			rec := httptest.NewRecorder()
			w := &counting{wire: wire{ResponseWriter: rec, write: rec.Write}}
			d := New(Config{Own: "home", NoAuth: true, Names: []string{"example.com"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, "one")
				time.Sleep(c.rest)
				_, _ = io.WriteString(w, "two")
			}))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json")
			d.ServeHTTP(w, r)
			if rec.Body.String() != "onetwo" || w.reads != 2 || w.writes != c.writes {
				t.Errorf("rest %v: got %q, %d deadlines of the body, %d of the answer; want 2 and %d", c.rest, rec.Body, w.reads, w.writes, c.writes)
			}
			if want := time.Now().Add(pieceTime); !w.reading.IsZero() || !w.writing.Equal(want) {
				t.Errorf("rest %v: got the deadlines %v and %v at the end, want none and %v", c.rest, w.reading, w.writing, want)
			}
		})
	}
}

package dockerapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestVersionIsAgreedUpon: calls use the engine's newest version, at most the client's, and an engine that is too
// old is refused. The version is asked for once.
func TestVersionIsAgreedUpon(t *testing.T) {
	for newest, want := range map[string]string{
		"": "v1.56", "1.40": "v1.40", "1.41": "v1.41", "1.56": "v1.56", "1.57": "v1.56", "1.100": "v1.56",
		"1.39": "", "1.9": "", "1": "", "2.44": "", "1.x": "", "1.44.1": "", "1.-44": "", "latest": "",
	} {
		t.Run(newest, func(t *testing.T) {
			paths := make(chan string, 2)
			e := &engine{version: newest, handler: func(w http.ResponseWriter, r *http.Request) {
				paths <- r.URL.Path
				_, _ = io.WriteString(w, "{}")
			}}
			a := e.serve(t)
			for range 2 {
				_, err := a.Version(t.Context())
				if want == "" {
					if err == nil || !strings.Contains(err.Error(), "1.40") {
						t.Errorf("got %v, want an error with the oldest version", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := <-paths; got != "/"+want+"/version" {
					t.Errorf("got %s, want /%s/version", got, want)
				}
			}
			if pings, _ := e.counts(); pings != 1 {
				t.Errorf("the version was asked for %d times, want once", pings)
			}
		})
	}
}

// TestVersionIsAgreedUponAnew: an engine that was replaced by one with other versions refuses one call and no more.
func TestVersionIsAgreedUponAnew(t *testing.T) {
	e := &engine{version: "1.44"}
	e.handler = func(w http.ResponseWriter, r *http.Request) {
		if newest := w.Header().Get("Api-Version"); !strings.HasPrefix(r.URL.Path, "/v"+newest+"/") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"message":"client version is too new"}`)
			return
		}
		_, _ = io.WriteString(w, "{}")
	}
	a := e.serve(t)
	if _, err := a.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.change("1.41")
	if _, err := a.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "too new") {
		t.Errorf("the first call: got %v, want the engine's refusal", err)
	}
	if _, err := a.Version(t.Context()); err != nil {
		t.Errorf("the second call: %v", err)
	}
}

// TestRefusalsKeepTheVersionOfOtherCalls: a call that is refused makes no other call lose its version.
func TestRefusalsKeepTheVersionOfOtherCalls(t *testing.T) {
	var other atomic.Value
	a := (&engine{version: "1.44", handler: func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1.44/") {
			other.Store(r.URL.Path)
		}
		w.WriteHeader(http.StatusBadRequest)
	}}).serve(t)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for range 100 {
				_ = a.ContainerStart(t.Context(), "x")
			}
		})
	}
	calls.Wait()
	if path := other.Load(); path != nil {
		t.Errorf("got a call of %v, want the version 1.44", path)
	}
}

// TestRefusalHasTheEnginesMessage: the error has the message of the engine, its status, and no more than a bounded
// part of a text.
func TestRefusalHasTheEnginesMessage(t *testing.T) {
	for name, c := range map[string]struct {
		status             int
		kind, text         string
		want               string
		notFound, conflict bool
	}{
		"not found":         {404, "application/json", `{"message":"No such container: x\n"}`, "the engine answers: No such container: x", true, false},
		"conflict":          {409, "application/json", `{"message":"removal is in progress"}`, "the engine answers: removal is in progress", false, true},
		"failure":           {500, "application/json", `{"message":"no space left"}`, "the engine answers: no space left", false, false},
		"plain text":        {503, "text/plain", "a proxy\n", "the engine answers: a proxy", false, false},
		"nothing":           {500, "", "", "the engine answers with status 500", false, false},
		"JSON of others":    {500, "application/json; charset=utf-8", `["x"]`, "the engine answers with status 500", false, false},
		"another redirects": {302, "text/html", "", "the engine answers with status 302", false, false},
		"a long text":       {500, "text/plain", strings.Repeat("x", mostRefusal+1), "the engine answers: " + strings.Repeat("x", mostRefusal), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := (&engine{handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.text)
			}}).serve(t)
			err := a.ContainerStart(t.Context(), "x")
			if err == nil || err.Error() != c.want {
				t.Fatalf("got %.200v, want %.200s", err, c.want)
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.Status != c.status {
				t.Errorf("got %#v, want the status %d", err, c.status)
			}
			if IsNotFound(err) != c.notFound || IsConflict(err) != c.conflict || IsUnreachable(err) {
				t.Errorf("got not found %t, conflict %t, unreachable %t", IsNotFound(err), IsConflict(err), IsUnreachable(err))
			}
		})
	}
}

// TestCallsEndWithTheirContext: before and within an answer, and while events are awaited. The error is that of
// the context, not that of an engine that is not reached, and the connection is closed.
func TestCallsEndWithTheirContext(t *testing.T) {
	for name, begun := range map[string]bool{"before the answer": false, "within the answer": true} {
		for what, call := range map[string]func(context.Context, *Client) error{
			"call": func(ctx context.Context, a *Client) error { _, err := a.Info(ctx); return err },
			"wait": func(ctx context.Context, a *Client) error { _, err := a.ContainerWait(ctx, "x", Removed); return err },
			"import": func(ctx context.Context, a *Client) error {
				_, err := a.ImageImport(ctx, strings.NewReader("tar"), nil, "")
				return err
			},
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e := &engine{handler: func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if begun {
						_, _ = io.WriteString(w, `{"`)
						_ = http.NewResponseController(w).Flush()
					}
					cancel()
					<-r.Context().Done()
				}}
				a := e.serve(t)
				if err := call(ctx, a); !errors.Is(err, context.Canceled) || IsUnreachable(err) {
					t.Errorf("got %v, want that the context was cancelled", err)
				}
				testkit.Until(t, "the connection is closed", func() bool { _, open := e.counts(); return open == 0 })
			})
		}
	}
}

// TestDeadlineIsNoMissingEngine: an engine that does not answer in the time of a call is not unreachable.
func TestDeadlineIsNoMissingEngine(t *testing.T) {
	a := (&engine{handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}).serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := a.Info(ctx); !errors.Is(err, context.DeadlineExceeded) || IsUnreachable(err) {
		t.Errorf("got %v, want the deadline of the context", err)
	}
}

// TestNoConnectionOutlivesItsCall: calls that succeed, fail and are refused close their connection.
func TestNoConnectionOutlivesItsCall(t *testing.T) {
	e := &engine{handler: func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/info"):
			_, _ = io.WriteString(w, `{}`)
		case strings.HasSuffix(r.URL.Path, "/version"):
			_, _ = io.WriteString(w, `not JSON`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}}
	a := e.serve(t)
	if _, err := a.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Version(t.Context()); err == nil || IsUnreachable(err) {
		t.Errorf("got %v, want an answer that cannot be read", err)
	}
	if err := a.ContainerStart(t.Context(), "x"); !IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
	testkit.Until(t, "all connections are closed", func() bool { _, open := e.counts(); return open == 0 })
}

// TestUnreachable: no socket, nothing that listens, another protocol, and an engine that goes away.
func TestUnreachable(t *testing.T) {
	closed, closedHost := listen(t)
	_ = closed.Close()
	talking := func(text string) string {
		l, host := listen(t)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 1<<10))
				_, _ = io.WriteString(c, text)
				_ = c.Close()
			}
		}()
		return host
	}
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
	for name, host := range map[string]string{
		"no socket": "unix://" + socket(t), "nothing listens": closedHost,
		"another protocol": talking("SSH-2.0-x\r\n"), "nothing is said": talking(""), "the answer breaks off": talking(answer + "{"),
	} {
		a := client(t, Config{Host: host})
		if _, err := a.Info(t.Context()); !IsUnreachable(err) || IsNotFound(err) || !strings.Contains(err.Error(), "connection to the engine failed") {
			t.Errorf("%s: got %v, want an engine that is not reached", name, err)
		}
	}
}

// TestDialIsBounded: an engine to which no connection can be made in time is unreachable, by TCP and by TLS. The
// error of TCP is a deadline too, though the context has none.
func TestDialIsBounded(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String() // whose connections nothing accepts
	certs, _ := testkit.Certificates(t)
	a := client(t, Config{Host: "tcp://" + address, DialLimit: time.Nanosecond})
	if err := a.Ping(t.Context()); !IsUnreachable(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TCP: got %v, want unreachable, by a deadline", err)
	}
	a = client(t, Config{Host: "tcp://" + address, Certs: certs, DialLimit: 50 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := a.Ping(ctx); !IsUnreachable(err) {
		t.Errorf("TLS: got %v, want unreachable", err)
	}
}

// TestAnswersAreBounded: the client reads no more than its bound of an answer without end.
func TestAnswersAreBounded(t *testing.T) {
	const most = mostAnswer + mostAnswer/2
	sent := make(chan int, 1)
	endless := func(start, part string) *engine {
		return &engine{handler: func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.WriteString(w, start)
			n, block := 0, strings.Repeat(part, 1<<16/len(part))
			for ; err == nil && n < most; n += len(block) {
				_, err = io.WriteString(w, block)
			}
			sent <- n
		}}
	}
	for name, c := range map[string]struct {
		e    *engine
		call func(*Client) error
	}{
		"call": {endless(`{"Architecture":"`, "x"), func(a *Client) error { _, err := a.Info(t.Context()); return err }},
		"import": {endless("", `{"status":"`+strings.Repeat("x", 1<<10)+`"}`), func(a *Client) error {
			_, err := a.ImageImport(t.Context(), strings.NewReader(""), nil, "")
			return err
		}},
		"event": {endless(`{"Type":"`, "x"), func(a *Client) error {
			events, err := a.Events(t.Context(), time.Time{}, time.Now(), nil)
			if err != nil {
				return fmt.Errorf("no events: %w", err)
			}
			defer events.Close()
			if err = events.Next(); err == nil {
				t.Error("event: got one, want an error")
			}
			return err
		}},
	} {
		if err := c.call(c.e.serve(t)); err == nil || IsUnreachable(err) {
			t.Errorf("%s: got %v, want an error of the answer", name, err)
		}
		if n := <-sent; n >= most {
			t.Errorf("%s: the client took %d bytes, want at most %d", name, n, mostAnswer)
		}
	}
}

// TestAddresses: which addresses can be used, and where they lead.
func TestAddresses(t *testing.T) {
	certs, _ := testkit.Certificates(t)
	for _, c := range []struct{ host, certs, want, fails string }{
		{"", "", "http://engine", ""},
		{"unix:///run/x", certs, "http://engine", ""},
		{"npipe:////./pipe/x", "", "http://engine", ""},
		{"tcp://127.0.0.1:2375", "", "http://127.0.0.1:2375", ""},
		{"http://[::1]:2375/engine/", "", "http://[::1]:2375/engine", ""},
		{"tcp://127.0.0.1:2376", certs, "https://127.0.0.1:2376", ""},
		{"https://127.0.0.1:2376", certs, "https://127.0.0.1:2376", ""},
		{"https://127.0.0.1:2376", "", "", "certificates"},
		{"ssh://host", "", "", "ssh"},
		{"unix://", "", "", "form"},
		{"/run/docker.sock", "", "", "form"},
		{"tcp://a b", "", "", "invalid"},
	} {
		a, err := New(Config{Host: c.host, Certs: c.certs})
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: got %v, want an error with %q", c.host, err, c.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.host, err)
		} else if got := a.base.String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.host, got, c.want)
		}
	}
}

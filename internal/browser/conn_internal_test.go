package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
)

// pair returns a connection and the browser's end of it.
func pair(t *testing.T, event func(string, cdproto.MethodType, []byte)) (*conn, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = theirs.Close(); _ = ours.Close() })
	return newConn(t.Context(), ours, event), theirs
}

// A browser that was taken over sends what it likes. The connection ends or goes on, and nothing
// else happens.
func TestHostileMessages(t *testing.T) {
	for name, text := range map[string]string{
		"Empty": "\x00\x00\x00", "Garbage": "{]\x00", "Number": "7\x00", "Null": "null\x00", "Deep": strings.Repeat("[", 100_000) + "\x00",
		"Answer": `{"id": 99, "result": 5}` + "\x00", "Twice": `{"id": 1, "result": {}}` + "\x00" + `{"id": 1, "result": {}}` + "\x00",
		"Events": strings.Repeat(`{"method":"Page.lifecycleEvent","params":{"name":7}}`+"\x00", 100), "Wrong": `{"method":"Network.responseReceived","params":[1]}` + "\x00", "Cut": `{"id":`,
	} {
		t.Run(name, func(t *testing.T) {
			tab := &tab{docs: map[string]*document{}, changed: make(chan struct{})}
			c, browser := pair(t, tab.event)
			go func() { _, _ = io.Copy(io.Discard, browser) }()
			tab.conn = c
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			go func() {
				_, _ = io.WriteString(browser, text)
				_ = browser.Close()
			}()
			_ = c.call(ctx, "", "Target.createTarget", nil, nil)
			select {
			case <-c.over:
			case <-ctx.Done():
				t.Fatal("the connection goes on after its end")
			}
			if err := c.call(ctx, "", "Target.createTarget", nil, nil); err == nil || ctx.Err() != nil {
				t.Errorf("got %v, want an error at once", err)
			}
		})
	}
}

// endless has no end and no zero byte.
type endless struct{ zeros int }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
		if e.zeros > 0 && i%e.zeros == 0 {
			p[i] = 0
		}
	}
	return len(p), nil
}
func (endless) Close() error                { return nil }
func (endless) Write(p []byte) (int, error) { return len(p), nil }

func TestMessagesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		zeros, want int
	}{"OneMessage": {0, maxMessage}, "AllMessages": {100, maxMessages}} {
		t.Run(name, func(t *testing.T) {
			b := &bounded{ReadCloser: endless{c.zeros}}
			n, err := io.Copy(io.Discard, b)
			if !errors.Is(err, errTooMuch) || n > int64(c.want) || n < int64(c.want)-(1<<20) {
				t.Errorf("got %d bytes, %v; want %d and an error", n, err, c.want)
			}
		})
	}
}

// Documents and lifecycle names of a hostile browser are bounded.
func TestTabsAreBounded(t *testing.T) {
	tab := &tab{docs: map[string]*document{}, changed: make(chan struct{})}
	for i := range 1000 {
		id := string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		tab.event("", "Page.lifecycleEvent", []byte(`{"loaderId":"`+id+`","name":"`+id+`"}`))
		tab.event("", "Page.lifecycleEvent", []byte(`{"loaderId":"a","name":"`+id+`"}`))
	}
	if len(tab.docs) > maxLoaders || len(tab.docs["a"].reached) > maxLoaders {
		t.Errorf("got %d documents and %d names, want at most %d", len(tab.docs), len(tab.docs["a"].reached), maxLoaders)
	}
}

// A browser that was taken over tells of dialogs without end, and answers none of the commands. The
// server answers one after the other.
func TestDialogsAreAnsweredOneAfterTheOther(t *testing.T) {
	const dialogs = 5000
	tab := &tab{ctx: t.Context(), session: "s", docs: map[string]*document{}, changed: make(chan struct{})}
	ours, browser := net.Pipe()
	t.Cleanup(func() { _ = browser.Close(); _ = ours.Close() })
	seen := 0
	all := make(chan struct{})
	tab.conn = newConn(t.Context(), ours, func(session string, method cdproto.MethodType, text []byte) {
		tab.event(session, method, text)
		if seen++; seen == dialogs {
			close(all)
		}
	})
	before := runtime.NumGoroutine()
	for range dialogs {
		if _, err := io.WriteString(browser, `{"method":"Page.javascriptDialogOpening","sessionId":"s","params":{}}`+"\x00"); err != nil {
			t.Fatal(err)
		}
	}
	<-all
	tab.conn.mu.Lock()
	waits := len(tab.conn.waits)
	tab.conn.mu.Unlock()
	if more := runtime.NumGoroutine() - before; more > 50 || waits > 1 {
		t.Fatalf("got %d goroutines and %d commands that wait for an answer, want one", more, waits)
	}
	answers := bufio.NewReader(browser)
	for id := 1; id <= 2; id++ { // the second answer is that to a dialog that was opened meanwhile
		if got, err := answers.ReadString(0); err != nil || !strings.Contains(got, "Page.handleJavaScriptDialog") {
			t.Fatalf("got %q, %v, want an answer to a dialog", got, err)
		}
		if _, err := fmt.Fprintf(browser, "{\"id\":%d,\"result\":{}}\x00", id); err != nil {
			t.Fatal(err)
		}
	}
}

// A browser that was taken over can tell of an answer with millions of fields, which would take the
// server's memory and time when decoded.
func TestLargeEventsAreNotDecoded(t *testing.T) {
	ours, browser := net.Pipe()
	t.Cleanup(func() { _ = browser.Close(); _ = ours.Close() })
	var seen []int
	c := newConn(t.Context(), ours, func(_ string, _ cdproto.MethodType, text []byte) { seen = append(seen, len(text)) })
	for _, n := range []int{1, maxEvent, 1} {
		if _, err := io.WriteString(browser, `{"method":"Network.responseReceived","params":{"a":"`+strings.Repeat("a", n)+`"}}`+"\x00"); err != nil {
			t.Fatal(err)
		}
	}
	_ = browser.Close()
	<-c.over
	if len(seen) != 2 || seen[0] > maxEvent || seen[1] > maxEvent {
		t.Errorf("got events of %v bytes, want the two small ones", seen)
	}
}

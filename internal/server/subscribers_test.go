package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// fakeEvents is the event stream of a fake engine.
type fakeEvents struct {
	eventsMu  sync.Mutex
	followers map[chan sandboxmcp.Event]sandboxmcp.Namespace
}

func (f *fakeEvents) Follow(ctx context.Context, c sandboxmcp.Caller, _ bool) (<-chan sandboxmcp.Event, error) {
	f.eventsMu.Lock()
	defer f.eventsMu.Unlock()
	if f.followers == nil {
		f.followers = map[chan sandboxmcp.Event]sandboxmcp.Namespace{}
	}
	events := make(chan sandboxmcp.Event, 16)
	f.followers[events] = c.Namespace
	context.AfterFunc(ctx, func() {
		f.eventsMu.Lock()
		defer f.eventsMu.Unlock()
		delete(f.followers, events)
		close(events)
	})
	return events, nil
}

// emit sends an event, and returns how many followers get it.
func (f *fakeEvents) emit(e sandboxmcp.Event) (n int) {
	f.eventsMu.Lock()
	defer f.eventsMu.Unlock()
	for events, ns := range f.followers {
		if ns == e.Namespace {
			events <- e
			n++
		}
	}
	return n
}

// listening reads the notifications of a subscription of the modern era.
type listening struct {
	t      *testing.T
	events *bufio.Reader
}

func subscribed(t *testing.T, p *peer, uris ...string) *listening {
	t.Helper()
	resp := p.begin(t.Context(), "subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": uris}})
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got status %d, want a stream", resp.StatusCode)
	}
	l := &listening{t, bufio.NewReader(resp.Body)}
	if m, err := nextMessage(l.events); err != nil || m["method"] != "notifications/subscriptions/acknowledged" {
		t.Fatalf("got %v, %v, want the acknowledgment", m, err)
	}
	return l
}

func (l *listening) updated() string {
	l.t.Helper()
	m, err := nextMessage(l.events)
	if err != nil {
		l.t.Fatal(err)
	}
	return updatedURI(m)
}

func updatedURI(m map[string]any) string {
	params, _ := m["params"].(map[string]any)
	if m["method"] != "notifications/resources/updated" {
		return fmt.Sprint(m)
	}
	return fmt.Sprint(params["uri"])
}

// TestSubscribersHearOfEvents: in both eras, a subscriber hears that a run has ended, that a run or
// an upload has changed a file of a session, and that a session is gone. It hears nothing of a
// namespace that is not its own.
func TestSubscribersHearOfEvents(t *testing.T) {
	f := newFake()
	f.files["x.csv"] = []byte("1")
	w := openWeb(t, f)
	const x, y, z, result = "artifact://s/x.csv", "artifact://s/y.csv", "artifact://other/z.csv", "run://" + runID + "/result"
	a, b := subscribed(t, w.modernPeer("ka"), x, y, result), subscribed(t, w.modernPeer("kb"), x, z, result)
	old := legacy(t, f) // of the namespace team
	for _, uri := range []string{x, y, result} {
		old.request("resources/subscribe", map[string]any{"uri": uri})
	}
	ended := func(ns sandboxmcp.Namespace) sandboxmcp.Event {
		return sandboxmcp.Event{Type: sandboxmcp.EventExecutionCompleted, Namespace: ns, Data: map[string]any{"request_id": sandboxmcp.RequestID(runID), "session_id": sandboxmcp.SessionID("s")}}
	}
	both := func(what string, next func() string) {
		t.Helper()
		if got := map[string]bool{next(): true, next(): true}; !got[x] || !got[result] {
			t.Errorf("%s: got %v, want %s and %s", what, got, x, result)
		}
	}
	if n := f.emit(ended("team-a")); n != 1 {
		t.Errorf("got %d followers of team-a, want 1", n)
	}
	both("a run of team-a", a.updated)
	f.emit(sandboxmcp.Event{Type: sandboxmcp.EventSessionKilled, Namespace: "team-b", Data: map[string]any{"session_id": "other"}})
	if got := b.updated(); got != z {
		t.Errorf("team-b: got %s first, want %s: it heard of another namespace", got, z)
	}
	f.emit(ended("team"))
	both("a run over a pipe", func() string { return updatedURI(old.read()) })
	f.emit(sandboxmcp.Event{Type: sandboxmcp.EventQueueBackpressure, Namespace: "team-a", Dropped: 3})
	if got := map[string]bool{a.updated(): true, a.updated(): true, a.updated(): true}; len(got) != 3 {
		t.Errorf("after missed events: got %v, want all three", got)
	}
	w.modernPeer("ka").call("sandbox_upload_file", map[string]any{"session_id": "s", "filename": "y.csv", "content": "2"})
	if got := a.updated(); got != y {
		t.Errorf("an upload: got %s, want %s", got, y)
	}
	old.request("resources/unsubscribe", map[string]any{"uri": x})
	f.emit(sandboxmcp.Event{Type: sandboxmcp.EventSessionKilled, Namespace: "team", Data: map[string]any{"session_id": "s"}})
	if got := updatedURI(old.read()); got != y {
		t.Errorf("after the end of a subscription: got %s, want %s alone", got, y)
	}
}

// TestSubscriptionsAreBounded: a client cannot fill the memory with them, and the followers of events
// end with the last one.
func TestSubscriptionsAreBounded(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	uri := func(i int) string { return "artifact://s/" + strconv.Itoa(i) }
	for i := range 256 {
		if m := p.request("resources/subscribe", map[string]any{"uri": uri(i)}); m["error"] != nil {
			t.Fatalf("%d: got %v, want it accepted", i, m)
		}
	}
	if m := fmt.Sprint(p.request("resources/subscribe", map[string]any{"uri": uri(256)})); !strings.Contains(m, "256 resources already") {
		t.Errorf("one more: got %v, want it refused", m)
	}
	if m := p.request("resources/subscribe", map[string]any{"uri": uri(0)}); m["error"] != nil {
		t.Errorf("one again: got %v, want it accepted", m)
	}
	for i := range 256 {
		p.request("resources/unsubscribe", map[string]any{"uri": uri(i)})
	}
	f.eventsMu.Lock()
	left := len(f.followers)
	f.eventsMu.Unlock()
	for left > 0 && t.Context().Err() == nil { // the follower ends in another goroutine
		f.eventsMu.Lock()
		left = len(f.followers)
		f.eventsMu.Unlock()
	}
}

// TestSubscriptionsToAnything: resources that the server does not have count like others, each by its
// bytes, and a client that asks for all at once is refused.
func TestSubscriptionsToAnything(t *testing.T) {
	p := legacy(t, newFake())
	for i := range 256 {
		if m := p.request("resources/subscribe", map[string]any{"uri": "other:" + strconv.Itoa(i)}); m["error"] != nil {
			t.Fatalf("%d: got %v, want it accepted", i, m)
		}
	}
	if m := fmt.Sprint(p.request("resources/subscribe", map[string]any{"uri": "other:256"})); !strings.Contains(m, "256 resources already") {
		t.Errorf("one more: got %v, want it refused", m)
	}
	p = legacy(t, newFake())
	for i := range 2 {
		m := p.request("resources/subscribe", map[string]any{"uri": strconv.Itoa(i) + strings.Repeat("x", 200<<10)})
		if refused := m["error"] != nil; refused != (i == 1) {
			t.Errorf("%d: got %.100v, want the second refused", i, m)
		}
	}
	w := openWeb(t, newFake())
	uris := make([]string, 257)
	for i := range uris {
		uris[i] = "other:" + strconv.Itoa(i)
	}
	if m := fmt.Sprint(w.modernPeer("ka").request("subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": uris}})); !strings.Contains(m, "256 resources already") {
		t.Errorf("all at once: got %v, want it refused", m)
	}
}

// TestSubscriptionsEndWithTheirClient: the SDK keeps nothing of clients that are gone, not even the
// URIs.
func TestSubscriptionsEndWithTheirClient(t *testing.T) {
	w := openWeb(t, newFake())
	for range 3 {
		p := w.legacyPeer("ka", "2025-06-18")
		p.request("resources/subscribe", map[string]any{"uri": "artifact://s/" + p.session})
		_ = p.do(t.Context(), http.MethodDelete, server.MCPPath, nil).Body.Close()
	}
	w.legacyPeer("kb", "2025-06-18").request("resources/subscribe", map[string]any{"uri": "artifact://s/x"})
	if got := server.SubscribedURIs(w.server); got != 1 {
		t.Errorf("got %d URIs that are subscribed to, want 1", got)
	}
}

// TestTwoListensToOneResource: the end of one stream leaves another one of the same client that asks for the same. The end of
// both ends the subscription.
func TestTwoListensToOneResource(t *testing.T) {
	f := newFake()
	p := dial(t, f)
	const uri = "artifact://s1/a.txt"
	listen := func() int {
		id := p.begin("subscriptions/listen", map[string]any{
			"_meta":         map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
			"notifications": map[string]any{"resourceSubscriptions": []string{uri}},
		})
		if m := p.read(); m["method"] != "notifications/subscriptions/acknowledged" {
			t.Fatalf("got %v for listen, want its acknowledgment", m)
		}
		return id
	}
	cancel := func(id int) {
		p.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
		p.answer(id)
	}
	killed := sandboxmcp.Event{Type: sandboxmcp.EventSessionKilled, Namespace: "team", Data: map[string]any{"session_id": "s1"}}
	first, second := listen(), listen()
	cancel(first)
	if n := f.emit(killed); n != 1 {
		t.Fatalf("%d followers of events after the first end, want 1", n)
	}
	if m := p.read(); m["method"] != "notifications/resources/updated" {
		t.Errorf("got %v, want the update", m)
	}
	cancel(second)
	testkit.UntilEqual(t, "followers of events after both ends", 0, func() int {
		f.eventsMu.Lock()
		defer f.eventsMu.Unlock()
		return len(f.followers)
	})
}

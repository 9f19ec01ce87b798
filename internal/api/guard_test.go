package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// guard is a handler of limits and events: what happens is put into the channels
// of all who listen, which hold more than a test tells.
type guard struct {
	mu      sync.Mutex // guards what follows
	changes []sandboxmcp.LimitsChange
	spaces  []sandboxmcp.Namespace
	heard   []chan sandboxmcp.Event
}

func (g *guard) SetLimits(_ context.Context, c sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes = append(g.changes, c)
	if c.Strict && c.Limits.MaxRAMMB > 8192 {
		return sandboxmcp.LimitsChanged{}, sandboxmcp.Errorf(sandboxmcp.CodeLimitExceedsCap, "max_ram_mb is above its ceiling")
	}
	return sandboxmcp.LimitsChanged{Previous: sandboxmcp.DefaultLimits(), Current: c.Limits.Over(sandboxmcp.DefaultLimits()), Clamped: []string{}}, nil
}

func occurrence(n int) sandboxmcp.Event {
	return sandboxmcp.Event{ID: "m-" + strconv.Itoa(n), Type: sandboxmcp.EventExecutionStarted, Namespace: "default", Message: "m", Data: map[string]any{"request_id": "r"}, Timestamp: time.Unix(1, 0).UTC()}
}

func (g *guard) Events(ns sandboxmcp.Namespace) []sandboxmcp.Event {
	if ns == "none" {
		return nil
	}
	return []sandboxmcp.Event{occurrence(1)}
}

func (g *guard) Subscribe(ns sandboxmcp.Namespace) (events <-chan sandboxmcp.Event, stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan sandboxmcp.Event, 64)
	g.heard, g.spaces = append(g.heard, c), append(g.spaces, ns)
	return c, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for i, h := range g.heard {
			if h == c {
				g.heard = append(g.heard[:i], g.heard[i+1:]...)
				return
			}
		}
	}
}

func (g *guard) Follow(ns sandboxmcp.Namespace) (events <-chan sandboxmcp.Event, stop func()) {
	events, stop = g.Subscribe(ns)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard[len(g.heard)-1] <- occurrence(1)
	return events, stop
}

// listeners returns those who listen now.
func (g *guard) listeners() []chan sandboxmcp.Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]chan sandboxmcp.Event{}, g.heard...)
}

// eventually waits for something that comes about in another goroutine.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came about: %s", what)
		}
	}
}

func TestLimitsCall(t *testing.T) {
	dir := t.TempDir()
	_, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	done, err := c.SetLimits(t.Context(), sandboxmcp.LimitsChange{Namespace: "default", Limits: sandboxmcp.Limits{MaxRAMMB: 256, MaxCPUCores: 0.5}, Strict: true})
	want := sandboxmcp.LimitsChanged{Previous: sandboxmcp.DefaultLimits(), Current: sandboxmcp.Limits{MaxRAMMB: 256, MaxCPUCores: 0.5}.Over(sandboxmcp.DefaultLimits()), Clamped: []string{}}
	if d := cmp.Diff(want, done); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if _, err = c.SetLimits(t.Context(), sandboxmcp.LimitsChange{Namespace: "default", Reset: true}); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]sandboxmcp.LimitsChange{
		{Namespace: "default", Actor: "cli", Limits: sandboxmcp.Limits{MaxRAMMB: 256, MaxCPUCores: 0.5}, Strict: true},
		{Namespace: "default", Actor: "cli", Reset: true},
	}, h.changes); d != "" {
		t.Errorf("the server was asked (-want +got):\n%s", d)
	}
	if _, err = c.SetLimits(t.Context(), sandboxmcp.LimitsChange{Namespace: "default", Limits: sandboxmcp.Limits{MaxRAMMB: 9999}, Strict: true}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeLimitExceedsCap {
		t.Errorf("above the ceiling: got %v", err)
	}
	if _, err = c.SetLimits(t.Context(), sandboxmcp.LimitsChange{Namespace: "a b"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("bad namespace: got %v", err)
	}
}

func TestEventsCall(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir)
	c := peers(t, dir, 1)[0]
	got, err := c.Events(t.Context(), "")
	if d := cmp.Diff([]sandboxmcp.Event{occurrence(1)}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if got, err = c.Events(t.Context(), "none"); len(got) != 0 || err != nil {
		t.Errorf("of none: got %v, %v", got, err)
	}
	if _, err = c.Events(t.Context(), "a b"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("bad namespace: got %v", err)
	}
}

// Sixteen follow, each is told everything in order, and the end of one is no
// end of another.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	s, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	const followers, each = 16, 20
	enough := errors.New("enough")
	var wg sync.WaitGroup
	ends := make([]error, followers)
	told := make([][]string, followers)
	for i := range followers {
		wg.Go(func() {
			ends[i] = c.Follow(t.Context(), "default", i%2 == 0, func(e sandboxmcp.Event) error {
				told[i] = append(told[i], e.ID)
				if i < 8 && len(told[i]) == 5 {
					return enough
				}
				return nil
			})
		})
	}
	eventually(t, "all listen", func() bool { return len(h.listeners()) == followers })
	for n := 2; n < 2+each; n++ {
		for _, l := range h.listeners() {
			l <- occurrence(n)
		}
		eventually(t, "who has enough is gone, or is not yet", func() bool { return n < 8 || len(h.listeners()) == 8 })
	}
	eventually(t, "everything is read", func() bool {
		for _, l := range h.listeners() {
			if len(l) > 0 {
				return false
			}
		}
		return true
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for i, got := range told {
		var want []string
		for n := 2 - (i+1)%2; n < 2+each; n++ {
			want = append(want, occurrence(n).ID)
		}
		if i < 8 {
			want = want[:5]
		}
		// The very last may have been on its way when the server ended.
		if i >= 8 && len(got) == len(want)-1 {
			want = want[:len(got)]
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("follower %d (-want +got):\n%s", i, d)
		}
		if wantEnd := map[bool]error{true: enough}[i < 8]; !errors.Is(ends[i], wantEnd) {
			t.Errorf("follower %d ended with %v, want %v", i, ends[i], wantEnd)
		}
	}
	for _, ns := range h.spaces {
		if ns != "default" {
			t.Errorf("namespace: got %q", ns)
		}
	}
}

// A drain does not wait for who follows.
func TestDrainEndsFollowers(t *testing.T) {
	dir := t.TempDir()
	s, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	end := make(chan error, 1)
	go func() {
		end <- c.Follow(t.Context(), "", false, func(sandboxmcp.Event) error { return nil })
	}()
	eventually(t, "it listens", func() bool { return len(h.listeners()) == 1 })
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-end; err != nil {
		t.Errorf("the follower: %v", err)
	}
}

// One more than can be is refused, and there is room again after one has gone.
func TestFollowersAreBounded(t *testing.T) {
	dir := t.TempDir()
	_, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() { _ = c.Follow(ctx, "", false, func(sandboxmcp.Event) error { return nil }) })
	}
	eventually(t, "all listen", func() bool { return len(h.listeners()) == 64 })
	err := c.Follow(t.Context(), "", false, func(sandboxmcp.Event) error { return nil })
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
		t.Errorf("got %v, want queue_full", err)
	}
	if err = c.Follow(t.Context(), "a b", false, nil); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("got %v, want invalid_argument", err)
	}
	cancel()
	wg.Wait()
	eventually(t, "all have gone", func() bool { return len(h.listeners()) == 0 })
	stop := errors.New("stop")
	again := func() bool {
		err = c.Follow(t.Context(), "", true, func(sandboxmcp.Event) error { return stop })
		return errors.Is(err, stop)
	}
	eventually(t, "there is room", again)
}

// ask speaks to a server as another program would.
func ask(t *testing.T, dir, id, request string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "unix", filepath.Join(dir, "run", id+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err = io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Callers that send half a request, or follow and read nothing, keep nobody
// else waiting, and not the end of the server.
func TestSlowCallersHoldNothingUp(t *testing.T) {
	dir := t.TempDir()
	s, h := listen(t, dir)
	id := s.Hello().ID
	for range 20 {
		ask(t, dir, id, "POST /v1/limits HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		ask(t, dir, id, "GET /v1/he")
		ask(t, dir, id, "GET /v1/events/follow HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	eventually(t, "all listen", func() bool { return len(h.listeners()) == 20 })
	flood := sandboxmcp.Event{Message: strings.Repeat("x", 64<<10)}
	full := 0
	for _, l := range h.listeners() { // until its answer is stuck in the socket
		for stuck := false; !stuck; {
			select {
			case l <- flood:
			case <-time.NewTimer(200 * time.Millisecond).C:
				stuck, full = true, full+1
			}
		}
		if full == 3 { // enough of them
			break
		}
	}
	c := peers(t, dir, 1)[0]
	if _, err := c.Stats(t.Context()); err != nil {
		t.Errorf("stats: %v", err)
	}
	if _, err := c.SetLimits(t.Context(), sandboxmcp.LimitsChange{Namespace: "default"}); err != nil {
		t.Errorf("limits: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.NewTimer(20 * time.Second).C:
		t.Fatal("the server does not end")
	}
}

// A server that hangs is named after five seconds, whatever is asked of it.
func TestHungServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listen(t, dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "run", "1-hung.sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	cs, err := api.Peers(t.Context(), dir) // it takes connections, and never looks at them
	if len(cs) != 1 || err == nil || !strings.Contains(err.Error(), "server 1-hung does not answer") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %d peers and %v", len(cs), err)
	}
}

// Another version is named on both sides.
func TestOtherVersions(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "run", "1-later.sock")})
	if err != nil {
		t.Fatal(err)
	}
	later := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Hello{Protocol: 2, ID: "1-later"})
	})}
	go func() { _ = later.Serve(l) }()
	defer func() { _ = later.Close() }()
	cs, err := api.Peers(t.Context(), dir)
	if len(cs) != 1 || err == nil || !strings.Contains(err.Error(), "server 1-later speaks version 2 of the control protocol and this program version 1") {
		t.Errorf("got %d peers and %v", len(cs), err)
	}
	conn := ask(t, dir, s.Hello().ID, "POST /v2/limits HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 404 ") || !strings.Contains(string(answer), `"error":"not_found"`) || !strings.Contains(string(answer), "speaks version 1 of the control protocol and was asked in version 2") {
		t.Errorf("got %s, %v", answer, err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	ids, err := api.IDs(dir)
	if d := cmp.Diff([]string{s.Hello().ID}, ids); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if c, err := api.Find(t.Context(), dir, ids[0]); err != nil || c.Peer() != s.Hello() {
		t.Errorf("got %v", err)
	}
	if _, err = api.Find(t.Context(), dir, "1-none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of none: got %v", err)
	}
}

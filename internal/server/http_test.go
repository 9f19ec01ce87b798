package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestEveryVersionOverHTTP: one endpoint speaks all versions of the protocol.
func TestEveryVersionOverHTTP(t *testing.T) {
	w := openWeb(t, newFake())
	peers := []*peer{w.modernPeer("ka")}
	for _, v := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		peers = append(peers, w.legacyPeer("ka", v))
	}
	for _, p := range peers {
		m := p.request("tools/list", map[string]any{})
		res, _ := m["result"].(map[string]any)
		if list, _ := res["tools"].([]any); len(list) != 28 {
			t.Errorf("%s: got %.200v, want 28 tools", p.version, m)
		}
		if got := structured(p.call("execute_code", map[string]any{"code": p.version}))["stdout"]; got != p.version+"\n" {
			t.Errorf("%s: got stdout %v, want the version", p.version, got)
		}
	}
}

// TestNamespacesOfKeys: the key decides the namespace of a call, whatever the request names.
func TestNamespacesOfKeys(t *testing.T) {
	f := newFake()
	w := openWeb(t, f)
	for name, open := range map[string]func(key string) *peer{
		"modern": w.modernPeer, "legacy": func(key string) *peer { return w.legacyPeer(key, "2025-06-18") },
	} {
		for key, want := range map[string]sandboxmcp.Caller{
			"ka": {Namespace: "team-a", Actor: "http key 1"}, "kb": {Namespace: "team-b", Actor: "http key 2", Holder: "http key 2"},
		} {
			p := open(key)
			p.call("execute_code", map[string]any{"code": "1"})
			if got := f.callers[len(f.callers)-1]; got != want {
				t.Errorf("%s with %s: got caller %+v, want %+v", name, key, got, want)
			}
			for _, other := range []string{"home", "team-a", "team-b", "*"} {
				got := structured(p.call("inspect_state", map[string]any{"namespace": other}))
				if other == string(want.Namespace) {
					if got["error"] != nil {
						t.Errorf("%s with %s: its own namespace: got %v, want no error", name, key, got)
					}
				} else if got["error"] != "access_denied" && got["error"] != "invalid_argument" {
					t.Errorf("%s with %s: namespace %s as argument: got %v, want access_denied", name, key, other, got)
				}
			}
		}
		p := open("kb")
		if got := structured(p.call("inspect_state", map[string]any{"namespace": "team-c"})); got["namespace"] != nil && got["namespace"] != "team-c" || got["error"] != nil {
			t.Errorf("%s: the second namespace of the key: got %v, want no error", name, got)
		}
	}
}

// TestNamespaceInTheBody: fields of a request that name a namespace or a user decide nothing.
func TestNamespaceInTheBody(t *testing.T) {
	f := newFake()
	p := openWeb(t, f).modernPeer("ka")
	p.request("tools/call", map[string]any{
		"name": "execute_code", "arguments": map[string]any{"code": "1"}, "namespace": "team-b", "identity": map[string]any{"Namespaces": []string{"team-b"}},
		"_meta": map[string]any{"namespace": "team-b", "sandboxmcp.identity": map[string]any{"Namespaces": []string{"team-b"}, "Every": true}},
	})
	if got := f.callers[0].Namespace; got != "team-a" {
		t.Errorf("got namespace %s, want that of the key", got)
	}
	for _, path := range []string{"/mcp/team-b", "/team-b/mcp", "/mcp/../mcp/team-b"} {
		resp := p.do(t.Context(), http.MethodPost, path, []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: got %s, want 404", path, resp.Status)
		}
	}
}

// TestSessionsBelongToTheirCaller: another key cannot use, read or end a session.
func TestSessionsBelongToTheirCaller(t *testing.T) {
	f := newFake()
	w := openWeb(t, f)
	a := w.legacyPeer("ka", "2025-06-18")
	thief := &peer{web: w, key: "kb", version: a.version, session: a.session}
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		var body []byte
		if method == http.MethodPost {
			body = []byte(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"stolen"}}}`)
		}
		resp := thief.do(t.Context(), method, server.MCPPath, body)
		_ = resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s with another key: got %s, want a refusal", method, resp.Status)
		}
	}
	if len(f.requests) != 0 {
		t.Errorf("got the requests %v, want none", f.requests)
	}
	a.call("execute_code", map[string]any{"code": "mine"})
}

// TestTenantWithinASession: each request of a session selects a namespace of its own.
func TestTenantWithinASession(t *testing.T) {
	f := newFake()
	p := openWeb(t, f).legacyPeer("kb", "2025-06-18")
	for _, ns := range []string{"team-c", "team-b"} {
		p.headers = map[string]string{"X-Tenant-Id": ns}
		p.call("execute_code", map[string]any{"code": "1"})
		if got := f.callers[len(f.callers)-1].Namespace; string(got) != ns {
			t.Errorf("got namespace %s, want %s", got, ns)
		}
	}
}

// TestDeleteEndsASession: after it the id is unknown.
func TestDeleteEndsASession(t *testing.T) {
	w := openWeb(t, newFake())
	p := w.legacyPeer("ka", "2025-06-18")
	resp := p.do(t.Context(), http.MethodDelete, server.MCPPath, nil)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: got %s, want 204", resp.Status)
	}
	resp = p.begin(t.Context(), "tools/list", map[string]any{})
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("after it: got %s, want 404", resp.Status)
	}
	testkit.UntilEqual(t, "sessions", 0, func() int { return server.OpenSessions(w.server) })
}

// TestSessionsAreBounded: one caller cannot fill the server with sessions, and does not keep
// another from one.
func TestSessionsAreBounded(t *testing.T) {
	w := openWeb(t, newFake())
	hello := map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}
	refused := 0
	for range server.MaxSessionsEach + 5 {
		p := &peer{web: w, key: "ka"}
		resp := p.begin(t.Context(), "initialize", hello)
		if resp.StatusCode == http.StatusTooManyRequests {
			refused++
		}
		_ = resp.Body.Close()
	}
	if refused != 5 {
		t.Errorf("got %d refused sessions, want 5", refused)
	}
	w.legacyPeer("kb", "2025-06-18").call("execute_code", map[string]any{"code": "1"})
}

// TestProgressOverHTTP: notifications come before the answer, in the same stream.
func TestProgressOverHTTP(t *testing.T) {
	f := newFake()
	f.execute = func(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		fmt.Fprintln(req.Stdout, "half way")
		<-f.started
		return result(req, "done\n"), nil
	}
	w := openWeb(t, f)
	for _, p := range []*peer{w.modernPeer("ka"), w.legacyPeer("ka", "2025-06-18")} {
		resp := p.begin(t.Context(), "tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "1"}, "_meta": map[string]any{"progressToken": "tok"}})
		r := bufio.NewReader(resp.Body)
		m, err := nextMessage(r)
		params, _ := m["params"].(map[string]any)
		if err != nil || m["method"] != "notifications/progress" || params["message"] != "half way" || params["progressToken"] != "tok" {
			t.Errorf("%s: got %v and %v, want the progress", p.version, m, err)
		}
		f.started <- struct{}{}
		if m, err = p.answer(r); err != nil || m["result"] == nil {
			t.Errorf("%s: got %v and %v, want the answer", p.version, m, err)
		}
		_ = resp.Body.Close()
	}
}

// TestHangingUpCancels: a client of the newest version ends its call by closing the
// connection.
func TestHangingUpCancels(t *testing.T) {
	f := newFake()
	p := openWeb(t, f).modernPeer("ka")
	ctx, hangUp := context.WithCancel(t.Context())
	go p.begin(ctx, "tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "block"}})
	<-f.started
	hangUp()
	<-f.cancelled
}

// TestTheEndOfTheServerCancels: calls end with the server, in every version.
func TestTheEndOfTheServerCancels(t *testing.T) {
	f := newFake()
	t.Run("server", func(t *testing.T) {
		w := openWeb(t, f)
		for _, p := range []*peer{w.modernPeer("ka"), w.legacyPeer("ka", "2025-06-18")} {
			go func() {
				body := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"block"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
				if p.session != "" {
					body = []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"block"}}}`)
				} else {
					p.headers = map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "execute_code"}
				}
				req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, p.url+server.MCPPath, bytes.NewReader(body))
				if err != nil {
					return
				}
				req.Header = http.Header{"X-Api-Key": {"ka"}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {p.version}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"execute_code"}}
				if p.session != "" {
					req.Header.Set("Mcp-Session-Id", p.session)
				}
				if resp, err := new(http.Transport).RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
			}()
			<-f.started
		}
	})
	<-f.cancelled
	<-f.cancelled
}

// sse is a client of the transport of 2024-11-05.
type sse struct {
	*peer
	events *bufio.Reader
	path   string
	close  func()
}

func (w *web) sse(key string) *sse {
	w.t.Helper()
	p := &peer{web: w, key: key}
	ctx, cancel := context.WithCancel(w.t.Context())
	resp := p.do(ctx, http.MethodGet, server.SSEPath, nil) //nolint:bodyclose // close does it
	s := &sse{peer: p, events: bufio.NewReader(resp.Body), close: func() { cancel(); _ = resp.Body.Close() }}
	w.t.Cleanup(s.close)
	for s.path == "" {
		line, err := s.events.ReadString('\n')
		if err != nil {
			w.t.Fatalf("got %s and %v, want the endpoint", resp.Status, err)
		}
		s.path, _ = strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !strings.HasPrefix(s.path, "/") {
			s.path = ""
		}
	}
	return s
}

func (s *sse) send(message map[string]any) int {
	s.t.Helper()
	body, err := json.Marshal(message)
	if err != nil {
		s.t.Fatal(err)
	}
	resp := s.do(s.t.Context(), http.MethodPost, s.path, body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestLegacyEventStream(t *testing.T) {
	f := newFake()
	w := openWeb(t, f)
	s := w.sse("kb")
	s.send(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": map[string]any{"protocolVersion": "2024-11-05", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}})
	if m, err := nextMessage(s.events); err != nil || m["result"] == nil {
		t.Fatalf("initialize: got %v and %v, want a result", m, err)
	}
	s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	s.send(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "over sse"}}})
	m, err := nextMessage(s.events)
	res, _ := m["result"].(map[string]any)
	if err != nil || structured(res)["stdout"] != "over sse\n" || f.callers[0].Namespace != "team-b" {
		t.Errorf("got %v, %v and the callers %v, want the output, and the namespace of the key", m, err, f.callers)
	}
	thief := &sse{peer: &peer{web: w, key: "ka"}, path: s.path}
	if status := thief.send(map[string]any{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "stolen"}}}); status != http.StatusNotFound {
		t.Errorf("another key: got status %d, want 404", status)
	}
	for ns, want := range map[string]int{"team-b": http.StatusAccepted, "team-c": http.StatusForbidden} { // the stream is that of team-b
		s.headers = map[string]string{"X-Tenant-Id": ns}
		if status := s.send(map[string]any{"jsonrpc": "2.0", "id": 5, "method": "ping"}); status != want {
			t.Errorf("a message for %s: got status %d, want %d", ns, status, want)
		}
	}
	s.headers = nil
	s.send(map[string]any{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "block"}}})
	<-f.started
	s.close()
	<-f.cancelled
	if slices.ContainsFunc(f.requests, func(r sandboxmcp.Request) bool { return r.Code == "stolen" }) {
		t.Error("got a request of another key, want none")
	}
}

// TestReconnectStorm: clients that open event streams and leave at once leave nothing.
func TestReconnectStorm(t *testing.T) {
	w := openWeb(t, newFake())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				w.sse("ka").close()
			}
		})
	}
	wg.Wait()
	testkit.UntilEqual(t, "open streams", 0, func() int { return server.OpenSessions(w.server) })
	// The same with the GET of a session, which ends neither the session nor the server.
	p := w.legacyPeer("ka", "2025-06-18")
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		resp := p.do(ctx, http.MethodGet, server.MCPPath, nil)
		cancel()
		_ = resp.Body.Close()
	}
	p.call("execute_code", map[string]any{"code": "1"})
}

// TestCrowdOverHTTP: of thousands of calls of many clients, some of which hang up, each gets
// its own answer, and nothing is left.
func TestCrowdOverHTTP(t *testing.T) {
	const clients = 64
	calls := 10_000
	if testing.Short() {
		calls = 1000
	}
	f := newFake()
	var hangUps sync.Map // code of a call: what hangs up
	f.execute = func(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		if hangUp, ok := hangUps.Load(req.Code); ok {
			hangUp.(context.CancelFunc)()
			<-ctx.Done()
			return sandboxmcp.Result{}, ctx.Err()
		}
		return result(req, req.Code+"\n"), nil
	}
	w := openWeb(t, f)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			p := w.modernPeer([]string{"ka", "kb"}[c%2])
			for n := range calls / clients {
				if n%20 == 7 {
					ctx, hangUp := context.WithCancel(t.Context())
					code := fmt.Sprintf("cancel %d %d", c, n)
					hangUps.Store(code, hangUp)
					if resp := p.begin(ctx, "tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"code": code}}); resp != nil {
						_ = resp.Body.Close()
					}
					hangUp()
					continue
				}
				want := fmt.Sprintf("%d %d", c, n)
				if got := structured(p.call("execute_code", map[string]any{"code": want}))["stdout"]; got != want+"\n" {
					t.Errorf("got %v, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
	testkit.UntilEqual(t, "open sessions", 0, func() int { return server.OpenSessions(w.server) })
}

// TestEveryRequestIsAnswered: a URI that the SDK cannot put into JSON gets an answer, too. Otherwise the request would stay
// in memory, and its id would be taken.
func TestEveryRequestIsAnswered(t *testing.T) {
	w := openWeb(t, newFake())
	for p, uris := range map[*peer][]string{
		w.legacyPeer("ka", "2025-06-18"): {"artifact://s/\x00", "run://\x7f\a", "nothing://\v", "artifact://s/\U000e0001"},
		w.modernPeer("ka"):               {"artifact://s/\U000e0001"}, // its URI is also in a header
	} {
		for _, uri := range uris {
			m := p.request("resources/read", map[string]any{"uri": uri})
			if failed, _ := m["error"].(map[string]any); failed["message"] == nil {
				t.Errorf("%s %q: got %v, want an error", p.version, uri, m)
			}
		}
	}
}

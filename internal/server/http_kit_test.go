package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// web is a server over HTTP with the keys ka of team-a, kb of team-b and team-c, and ko of an operator.
type web struct {
	t      testing.TB
	url    string
	server *server.Server
	client *http.Client
}

func openWeb(t testing.TB, f *fake) *web {
	t.Helper()
	c := f.config
	c.Engine, c.Version, c.Logger, c.HTTP = f, "1.2.3", slog.New(slog.DiscardHandler), true
	s := server.New(c)
	l, err := listen.Open(t.Context(), listen.Config{PortSet: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := door.New(door.Config{Own: "home", Rules: door.Rules{Keys: []door.Key{
		{Secret: sandboxmcp.NewSecret("ka"), Namespaces: []sandboxmcp.Namespace{"team-a"}},
		{Secret: sandboxmcp.NewSecret("kb"), Namespaces: []sandboxmcp.Namespace{"team-b", "team-c"}},
		{Secret: sandboxmcp.NewSecret("ko"), Operator: true},
	}}}, s.HTTP(ctx))
	stop := listen.Serve(ctx, l, listen.Served{Handler: d, Connected: door.Connected})
	w := &web{t: t, url: "http://" + l.Addr().String(), server: s, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	t.Cleanup(func() { w.client.CloseIdleConnections(); cancel(); stop() })
	return w
}

// peer is a client of a web.
type peer struct {
	*web
	key     string
	version string // of the protocol
	session string
	next    int
	notes   []map[string]any // notifications of the last call
	headers map[string]string
	can     map[string]any // capabilities, if the version has no handshake
}

// modernPeer returns a client of the version without a handshake.
func (w *web) modernPeer(key string) *peer { return &peer{web: w, key: key, version: "2026-07-28"} }

// legacyPeer returns a client after its handshake.
func (w *web) legacyPeer(key, version string) *peer {
	w.t.Helper()
	p := &peer{web: w, key: key}
	m := p.request("initialize", map[string]any{"protocolVersion": version, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	res, _ := m["result"].(map[string]any)
	if res["protocolVersion"] != version || p.session == "" {
		w.t.Fatalf("initialize: got %v and session %q, want version %s and a session", m, p.session, version)
	}
	p.version = version
	if resp := p.post(w.t.Context(), map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}); resp.StatusCode != http.StatusAccepted {
		w.t.Fatalf("initialized: got %s, want 202", resp.Status)
	} else {
		_ = resp.Body.Close()
	}
	return p
}

// do sends a request with the headers of the client.
func (p *peer) do(ctx context.Context, method, path string, body []byte) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	h := req.Header
	h.Set("Accept", "application/json, text/event-stream")
	if body != nil {
		h.Set("Content-Type", "application/json")
	}
	for name, value := range map[string]string{"X-API-Key": p.key, "MCP-Protocol-Version": p.version, "Mcp-Session-Id": p.session} {
		if value != "" {
			h.Set(name, value)
		}
	}
	for name, value := range p.headers {
		h.Set(name, value)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		p.t.Fatal(err)
	}
	return resp
}

func (p *peer) post(ctx context.Context, message map[string]any) *http.Response {
	p.t.Helper()
	body, err := json.Marshal(message)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.do(ctx, http.MethodPost, server.MCPPath, body)
}

// begin sends a request of MCP and returns the open answer; nil if ctx has ended.
func (p *peer) begin(ctx context.Context, method string, params map[string]any) *http.Response {
	p.t.Helper()
	p.next++
	if p.version >= "2026-07-28" {
		meta, _ := params["_meta"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		meta["io.modelcontextprotocol/protocolVersion"] = p.version
		meta["io.modelcontextprotocol/clientCapabilities"] = map[string]any{}
		if p.can != nil {
			meta["io.modelcontextprotocol/clientCapabilities"] = p.can
		}
		params["_meta"] = meta
		p.headers = map[string]string{"Mcp-Method": method}
		for _, field := range []string{"name", "uri"} {
			if name, ok := params[field].(string); ok && (method == "tools/call" || method == "resources/read" || method == "prompts/get") {
				p.headers["Mcp-Name"] = name
			}
		}
	}
	resp := p.post(ctx, map[string]any{"jsonrpc": "2.0", "id": p.next, "method": method, "params": params})
	if resp != nil && resp.Header.Get("Mcp-Session-Id") != "" {
		p.session = resp.Header.Get("Mcp-Session-Id")
	}
	return resp
}

// request sends a request of MCP and returns its answer.
func (p *peer) request(method string, params map[string]any) map[string]any {
	p.t.Helper()
	resp := p.begin(p.t.Context(), method, params)
	defer resp.Body.Close()
	m, err := p.answer(resp.Body)
	if err != nil {
		p.t.Fatalf("%s: got %s and %v, want an answer", method, resp.Status, err)
	}
	return m
}

// answer reads events up to the answer of the last request, or one JSON message.
func (p *peer) answer(body io.Reader) (map[string]any, error) {
	p.notes = nil
	r := bufio.NewReader(body)
	for {
		m, err := nextMessage(r)
		if err != nil {
			return nil, err
		}
		if m["id"] == float64(p.next) {
			return m, nil
		}
		p.notes = append(p.notes, m)
	}
}

// nextMessage returns the next message of a stream of events, or of JSON.
func nextMessage(r *bufio.Reader) (map[string]any, error) {
	for {
		line, err := r.ReadString('\n')
		text, isData := strings.CutPrefix(strings.TrimSpace(line), "data:")
		if isData || strings.HasPrefix(text, "{") {
			if text = strings.TrimSpace(text); text != "" {
				var m map[string]any
				if err := json.Unmarshal([]byte(text), &m); err != nil {
					return nil, fmt.Errorf("got %.100q, want JSON: %w", text, err)
				}
				return m, nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// call calls a tool and returns its result.
func (p *peer) call(tool string, args map[string]any) map[string]any {
	p.t.Helper()
	m := p.request("tools/call", map[string]any{"name": tool, "arguments": args})
	res, _ := m["result"].(map[string]any)
	if res == nil {
		p.t.Fatalf("%s: got %v, want a result", tool, m)
	}
	return res
}

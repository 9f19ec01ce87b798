package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// message returns a request with the id 7.
func message(method, params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + params + `}}`
}

// TestMessagesThatFillMemory: a message that would take many times its bytes, or that would be kept
// as long as its session, is refused before it is decoded, over every transport.
func TestMessagesThatFillMemory(t *testing.T) {
	const values = `{"":0},`
	var (
		long    = strings.Repeat("x", 300<<10)
		several = strings.Repeat(values, 3000) + "0"
		many    = strings.Repeat("0,", 1<<20) + "0"
		listed  = strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"tools/list"},`, 20)
	)
	good := map[string]string{
		"a long program":                   message("tools/call", `"name":"execute_code","arguments":{"code":"`+long+`"}`),
		"quotes and brackets in a program": message("tools/call", `"name":"execute_code","arguments":{"code":"`+strings.Repeat(`\"[,\\`, 1<<18)+`"}`),
		"many values for a tool":           message("tools/call", `"name":"bridge_data","arguments":{"data":{"x":[`+several+`]}}`),
	}
	bad := map[string]string{
		"a handshake with many values":      message("initialize", `"protocolVersion":"2025-03-26","clientInfo":{"name":"t","version":"1"},"capabilities":{"experimental":{"x":[`+several+`]}}`),
		"a handshake with a long name":      message("initialize", `"protocolVersion":"2025-03-26","clientInfo":{"name":"`+long+`","version":"1"},"capabilities":{}`),
		"a subscription with a long uri":    message("resources/subscribe", `"uri":"x:`+long+`"`),
		"very many values for a tool":       message("tools/call", `"name":"bridge_data","arguments":{"data":{"x":[`+many+`]}}`),
		"a method that is named twice":      `{"method":"tools/call","jsonrpc":"2.0","id":7,"method":"initialize","params":{"x":"` + long + `"}}`,
		"a method in capitals":              `{"Method":"initialize","jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":"` + long + `"},"method":"initialize"}`,
		"a method that is a text somewhere": `{"jsonrpc":"2.0","id":7,"params":{"method":"tools/call","x":"` + long + `"},"method":"ping"}`,
	}
	batches := map[string]string{
		"a batch of many messages":  "[" + listed + `{"jsonrpc":"2.0","id":2,"method":"ping"}]`,
		"a batch of a long program": "\n [" + good["a long program"] + "]",
	}
	f := newFake()
	w := openWeb(t, f)
	refused := func(what string, status int, text string) {
		t.Helper()
		if status != http.StatusBadRequest || !strings.Contains(text, `"error":"invalid_argument"`) || !strings.Contains(text, "has more than") {
			t.Errorf("%s: got %d and %.200s, want it refused by its size", what, status, text)
		}
	}
	post := func(p *peer, path, body string) (int, string) {
		resp := p.do(t.Context(), http.MethodPost, path, []byte(body))
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	old := w.legacyPeer("ka", "2025-03-26")
	events := w.openEvents("ka")
	pipe := legacy(t, f)
	for what, body := range good {
		if status, text := post(old, server.MCPPath, body); status != http.StatusOK || !strings.Contains(text, `"result"`) {
			t.Errorf("%s: got %d and %.200s, want a result", what, status, text)
		}
		pipe.line(body)
		if m := pipe.read(); m["result"] == nil {
			t.Errorf("%s over a pipe: got %.200v, want a result", what, m)
		}
	}
	for what, body := range bad {
		for era, p := range map[string]*peer{"first": {web: w, key: "ka"}, "legacy": old, "modern": w.modernPeer("ka")} {
			status, text := post(p, server.MCPPath, body)
			refused(what+" of the era "+era, status, text)
		}
		status, text := post(&peer{web: w, key: "ka"}, events, body)
		refused(what+" beside an event stream", status, text)
		pipe.line(body)
		if m := pipe.read(); errorCode(m) != -32600 || m["id"] != 7.0 || !strings.Contains(fmt.Sprint(m), "has more than") {
			t.Errorf("%s over a pipe: got %.200v, want it refused by its size", what, m)
		}
	}
	for what, body := range batches {
		status, text := post(old, server.MCPPath, body)
		refused(what, status, text)
	}
	if status, text := post(old, server.MCPPath, `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`); status != http.StatusOK || strings.Count(text, `"result"`) != 2 {
		t.Errorf("a small batch: got %d and %s, want two results", status, text)
	}
	params := `"name":"bridge_data","arguments":{"data":{"x":[` + many + `]}},"_meta":{` + plainMeta + `}`
	_, text := w.plain("bridge_data", message("tools/call", params), nil)
	refused("a plain call", http.StatusBadRequest, string(text))
}

// openEvents opens a stream of the transport of 2024-11-05, and returns where its messages go.
func (w *web) openEvents(key string) (path string) {
	w.t.Helper()
	p := &peer{web: w, key: key}
	resp := p.do(w.t.Context(), http.MethodGet, server.SSEPath, nil)
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			w.t.Fatal(err)
		}
		if path, ok := strings.CutPrefix(line, "data: "); ok {
			return strings.TrimSpace(path)
		}
	}
}

// TestMessagesThatAreReadDifferently: an id that the decoder changes, or a member that occurs twice, is
// refused over every transport.
func TestMessagesThatAreReadDifferently(t *testing.T) {
	w := openWeb(t, newFake())
	old := w.legacyPeer("ka", "2025-03-26")
	for _, c := range []struct{ body, want string }{
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "not whole"},
		{`{"jsonrpc":"2.0","method":"ping","id":9007199254740993}`, "not whole"},
		{`{"jsonrpc":"2.0","id":1e23,"method":"ping"}`, "not whole"},
		{`{"jsonrpc":"2.0","id":1e2,"method":"ping"}`, `"result"`},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2.5,"method":"ping"}]`, "not whole"},
		{message("tools/call", `"name":"execute_code","arguments":{"code":"1","code":"2"}`), `\"code\" occurs twice`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping"}`, `"result"`},
		{`{"jsonrpc":"2.0","id":-9007199254740992,"method":"ping"}`, `"id":-9007199254740992`},
		{`{"jsonrpc":"2.0","id":8,"method":"ping"}{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, "not one JSON value"},
		{`[{"jsonrpc":"2.0","id":8,"method":"ping"}] {"id":1,"id":2}`, "not one JSON value"},
		{`{"jsonrpc":"2.0","id":8,"method":"ping"} x`, "not one JSON value"},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"a\xff\",\"method\":\"ping\"}", "not one JSON value"},
		{`{"jsonrpc":"2.0","id":8,"method":"ping"}` + "\n \t", `"result"`},
		{`{"jsonrpc":"2.0","id":"1.5","method":"ping","params":{"id":1.5}}`, `"result"`},
	} {
		resp := old.do(t.Context(), http.MethodPost, server.MCPPath, []byte(c.body))
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: got %d, %.300s, %v, want %s", c.body, resp.StatusCode, text, err, c.want)
		}
	}
}

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// plainHeaders are the headers of a plain call, without the name of the tool.
var plainHeaders = map[string]string{
	"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-API-Key": "ka",
	"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
}

// plain sends a body with the headers of a plain call of a tool, changed by change. It returns the
// type and the text of the answer.
func (w *web) plain(name, body string, change func(http.Header)) (kind string, text []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+server.MCPPath, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for key, value := range plainHeaders {
		req.Header.Set(key, value)
	}
	req.Header.Set("Mcp-Name", name)
	if change != nil {
		change(req.Header)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Header.Get("Content-Type"), text
}

const plainMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`

// resultOf returns the result of the JSON-RPC answer in a text of JSON or of events.
func resultOf(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var last map[string]any
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("data:")))
		if bytes.HasPrefix(line, []byte("{")) {
			last = nil
			if err := json.Unmarshal(line, &last); err != nil {
				t.Fatalf("got %.200q: %v", line, err)
			}
		}
	}
	res, _ := last["result"].(map[string]any)
	if res == nil {
		t.Fatalf("got %.300s, want a result", text)
	}
	return res
}

// TestPlainCallsAreAnsweredAsTheSDKDoes compares the answers to calls that the server answers
// directly with those that pass through the SDK, because they carry a progress token.
func TestPlainCallsAreAnsweredAsTheSDKDoes(t *testing.T) {
	f := newFake()
	w := openWeb(t, f)
	for _, c := range []struct{ what, name, arguments string }{
		{"a result", "execute_code", `{"code":"print(42)"}`},
		{"an error", "execute_code", `{"code":"x","nonsense":1}`},
		{"arguments of another type", "execute_code", `["code"]`},
		{"a session that is not there", "terminate_session", `{"session_id":"none"}`},
		{"a foreign namespace", "inspect_state", `{"namespace":"foreign"}`},
		{"no arguments", "list_runtimes", `{}`},
	} {
		t.Run(c.what, func(t *testing.T) {
			body := func(meta string) string {
				return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + c.name + `","arguments":` + c.arguments + `,"_meta":{` + plainMeta + meta + `}}}`
			}
			kind, direct := w.plain(c.name, body(""), nil)
			if kind != "application/json" {
				t.Fatalf("got type %s, want application/json: the call was not answered directly", kind)
			}
			kind, through := w.plain(c.name, body(`,"progressToken":1`), nil)
			if !strings.HasPrefix(kind, "text/event-stream") {
				t.Fatalf("got type %s, want text/event-stream: the SDK did not answer", kind)
			}
			got, want := resultOf(t, direct), resultOf(t, through)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the answers differ (-SDK +direct):\n%s", d)
			}
		})
	}
}

// TestOtherRequestsPassThroughTheSDK: a request that is not exactly a plain call gets the SDK's
// answer, which refuses most of them.
func TestOtherRequestsPassThroughTheSDK(t *testing.T) {
	f := newFake()
	w := openWeb(t, f)
	good := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"1"},"_meta":{` + plainMeta + `}}}`
	for what, c := range map[string]struct {
		body   string
		change func(http.Header)
	}{
		"another name in the header":     {good, func(h http.Header) { h.Set("Mcp-Name", "list_runtimes") }},
		"another method in the header":   {good, func(h http.Header) { h.Set("Mcp-Method", "tools/list") }},
		"another version in the body":    {strings.Replace(good, "2026-07-28", "2025-06-18", 1), nil},
		"no version in the body":         {strings.Replace(good, plainMeta, `"x":1`, 1), nil},
		"another method in the body":     {strings.Replace(good, "tools/call", "tools/list", 1), nil},
		"no id":                          {strings.Replace(good, `"id":7,`, "", 1), nil},
		"a null id":                      {strings.Replace(good, `"id":7`, `"id":null`, 1), nil},
		"an object as id":                {strings.Replace(good, `"id":7`, `"id":{}`, 1), nil},
		"a batch":                        {"[" + good + "]", nil},
		"half a message":                 {good[:len(good)-2], nil},
		"a member twice":                 {strings.Replace(good, `"id":7`, `"id":7,"id":7`, 1), nil},
		"an inner member twice":          {strings.Replace(good, `"arguments"`, `"name":"execute_code","arguments"`, 1), nil},
		"a text after the message":       {good + "{}", nil},
		"bytes that are not UTF-8":       {strings.Replace(good, `"code":"1"`, "\"code\":\"\xff\"", 1), nil},
		"a number as version":            {strings.Replace(good, `"jsonrpc":"2.0"`, `"jsonrpc":2.0`, 1), nil},
		"no capabilities":                {strings.Replace(good, `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1), nil},
		"a further member":               {strings.Replace(good, `"id":7`, `"id":7,"x":1`, 1), nil},
		"members in capitals":            {strings.Replace(good, `"method"`, `"Method"`, 1), nil},
		"a parameter header":             {good, func(h http.Header) { h.Set("Mcp-Param-Code", "2") }},
		"an Accept without event-stream": {good, func(h http.Header) { h.Set("Accept", "application/json") }},
		"a question's answer":            {strings.Replace(good, `"arguments"`, `"requestState":"x","arguments"`, 1), nil},
	} {
		t.Run(what, func(t *testing.T) {
			_, text := w.plain("execute_code", c.body, c.change)
			if bytes.HasPrefix(text, []byte("{")) && bytes.Contains(text, []byte(`"result":{"resultType"`)) { // the SDK answers with events
				t.Errorf("got %.200s, want the SDK's answer", text)
			}
		})
	}
}

// TestAnswersAreNotMixedUp: answers that are made at the same time share no memory.
func TestAnswersAreNotMixedUp(t *testing.T) {
	f := newFake()
	f.execute = func(_ context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		return result(req, strings.Repeat(req.Code, 500)), nil
	}
	w := openWeb(t, f)
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			for i := range 30 {
				code := fmt.Sprintf("%d \"%d\"\n", n, i)
				_, text := w.plain("execute_code", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":`+strconv.Quote(code)+`},"_meta":{`+plainMeta+`}}}`, nil)
				structured, _ := resultOf(t, text)["structuredContent"].(map[string]any)
				if want := strings.Repeat(code, 500); structured["stdout"] != want {
					t.Errorf("got stdout %.40q, want %.40q", structured["stdout"], want)
				}
			}
		})
	}
	wg.Wait()
}

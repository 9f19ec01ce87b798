package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestHandshakes(t *testing.T) {
	for _, c := range []struct{ ask, want string }{
		{"2024-11-05", "2024-11-05"},
		{"2025-03-26", "2025-03-26"},
		{"2025-06-18", "2025-06-18"},
		{"2025-11-25", "2025-11-25"},
		{"1999-01-01", "2025-11-25"},
		{"2099-01-01", "2025-11-25"},
	} {
		p := dial(t, newFake())
		res := p.hello(c.ask)
		if got := res["protocolVersion"]; got != c.want {
			t.Errorf("initialize %s answers %v, want %s", c.ask, got, c.want)
		}
		who, _ := res["serverInfo"].(map[string]any)
		if who["name"] != "sandboxmcp" || who["version"] != "1.2.3" {
			t.Errorf("got serverInfo %v, want sandboxmcp 1.2.3", who)
		}
		caps, _ := res["capabilities"].(map[string]any)
		if caps["tools"] == nil || caps["resources"] == nil || caps["prompts"] == nil || caps["completions"] == nil || caps["logging"] != nil {
			t.Errorf("got capabilities %v, want tools, resources, prompts and completions, and no logging", caps)
		}
		if got := p.request("ping", nil)["result"]; got == nil {
			t.Error("got no answer to a ping, want one")
		}
		p.alive()
	}
}

func TestModernEra(t *testing.T) {
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{},
		"io.modelcontextprotocol/clientInfo": map[string]any{"name": "t", "version": "1"},
	}
	p := dial(t, newFake())
	d, _ := p.request("server/discover", map[string]any{"_meta": meta})["result"].(map[string]any)
	if d["instructions"] == nil || d["supportedVersions"] == nil {
		t.Fatalf("got %v from server/discover, want what it offers", d)
	}
	tools, _ := p.request("tools/list", map[string]any{"_meta": meta})["result"].(map[string]any)
	if tools["tools"] == nil || tools["resultType"] != "complete" {
		t.Errorf("got %v from tools/list, want complete tools", tools)
	}
	r, _ := p.request("tools/call", map[string]any{"_meta": meta, "name": "execute_code", "arguments": map[string]any{"code": "42"}})["result"].(map[string]any)
	if got := structured(r)["stdout"]; got != "42\n" {
		t.Errorf("got stdout %v, want 42", got)
	}
	if got := errorCode(p.request("ping", map[string]any{"_meta": meta})); got != -32601 {
		t.Errorf("ping in the modern era = %d, want -32601", got)
	}
}

func TestProtocolErrors(t *testing.T) {
	p := legacy(t, newFake())
	for _, c := range []struct {
		method string
		params any
		want   int
	}{
		{"tools/call", map[string]any{"name": "no_such_tool", "arguments": map[string]any{}}, -32602},
		{"tools/call", map[string]any{"name": 5}, -32602},
		{"tools/call", nil, -32600},
		{"no/such/method", map[string]any{}, -32601},
		{"prompts/get", map[string]any{"name": "no_such_prompt"}, -32602},
		{"initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}, -32600},
		{"resources/read", map[string]any{"uri": "run://" + runID + "/stdout"}, -32602},
		{"resources/read", map[string]any{"uri": "run://" + runID + "/other"}, -32602},
		{"resources/read", map[string]any{"uri": "file:///etc/passwd"}, -32602},
		{"resources/read", map[string]any{"uri": "artifact://" + runID + "/%zz"}, -32602},
		{"resources/read", map[string]any{"uri": "bad\x01\U0010ffff"}, -32602},
	} {
		m := p.request(c.method, c.params)
		if got := errorCode(m); got != c.want {
			t.Errorf("%s %v: got %v, want error %d", c.method, c.params, m, c.want)
		}
	}
	big := p.request("tools/call", map[string]any{"name": strings.Repeat("x", 1<<20)})
	if e, _ := big["error"].(map[string]any); len(fmt.Sprint(e["message"])) > 1000 {
		t.Error("got the whole request in an error, want it shortened")
	}
	p.alive()
}

func TestCallBeforeHandshake(t *testing.T) {
	p := dial(t, newFake())
	if got, want := errorCode(p.request("tools/list", map[string]any{})), -32600; got != want {
		t.Errorf("code = %d, want %d", got, want)
	}
	p.hello("2025-06-18")
	p.alive()
}

func TestMalformedLines(t *testing.T) {
	p := legacy(t, newFake())
	deep := strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000)
	for _, c := range []struct {
		name, line string
		code       int
		id         any
	}{
		{"text", "hello", -32700, nil},
		{"half", `{"jsonrpc":"2.0","id":1,`, -32700, nil},
		{"two values", `{"jsonrpc":"2.0","id":1,"method":"ping"} {}`, -32700, nil},
		{"NaN", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}`, -32700, nil},
		{"no UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", -32700, nil},
		{"NUL", "\x00", -32700, nil},
		{"too deep for any decoder", strings.Repeat("[", 200_000), -32700, nil},
		{"number", "7", -32600, nil},
		{"null", "null", -32600, nil},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, -32600, nil},
		{"empty batch", `[]`, -32600, nil},
		{"no version", `{"id":901,"method":"ping"}`, -32600, 901.0},
		{"wrong version", `{"jsonrpc":"1.0","id":"a","method":"ping"}`, -32600, "a"},
		{"object id", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600, nil},
		{"bool id", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, -32600, nil},
		{"id with a fraction", `{"jsonrpc":"2.0","id":901.5,"method":"ping"}`, -32600, 901.5},
		{"id with a fraction behind another id", `{"jsonrpc":"2.0","method":"ping","params":{"id":903,"x":0},"id":903.5}`, -32600, 903.5},
		{"id that a double cannot hold", `{"jsonrpc":"2.0","id":9223372036854775807,"method":"ping"}`, -32600, float64(1 << 63)},
		{"id that a double rounds", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, -32600, float64(1 << 53)},
		{"two codes", `{"jsonrpc":"2.0","id":905,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"1","code":"2"}}}`, -32600, 905.0},
		{"two codes, one with an escape", `{"jsonrpc":"2.0","id":906,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"1","\u0063ode":"2"}}}`, -32600, 906.0},
		{"id above 64 bits", `{"jsonrpc":"2.0","id":99999999999999999999999,"method":"ping"}`, -32600, 1e23},
		{"number for method", `{"jsonrpc":"2.0","id":902,"method":7}`, -32600, 902.0},
		{"neither", `{"jsonrpc":"2.0"}`, -32600, nil},
		{"deep", `{"jsonrpc":"2.0","id":90001,"method":"tools/call","params":{"name":"execute_code","arguments":{"env":` + deep + `}}}`, -32600, 90001.0},
	} {
		p.line(c.line)
		m := p.read()
		id, has := m["id"]
		if got := errorCode(m); got != c.code || !has || id != c.id {
			t.Errorf("%s: got %v, want error %d and id %v", c.name, m, c.code, c.id)
		}
	}
	// What needs no answer gets none: the next message is that to the ping.
	for _, line := range []string{"", "   ", "\r", `{"jsonrpc":"2.0","id":5,"result":{}}`, `{"result":{}}`, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}`, `{"jsonrpc":"2.0","method":"notifications/unknown"}`} {
		p.line(line)
	}
	p.line(`{"jsonrpc":"2.0","id":"p","method":"ping"}` + "\r")
	if m := p.read(); m["id"] != "p" || m["result"] == nil {
		t.Errorf("got %v after lines without an answer, want the answer to the ping", m)
	}
	for line, want := range map[string]any{`{"jsonrpc":"2.0","id":904.0,"method":"ping"}`: 904.0, `{"jsonrpc":"2.0","id":9007199254740992,"method":"ping"}`: float64(1 << 53)} {
		p.line(line)
		if m := p.read(); m["id"] != want || m["result"] == nil {
			t.Errorf("%s: got %v, want an answer with id %v", line, m, want)
		}
	}
	p.line(`{"jsonrpc":"2.0","id":903,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print('\ud83d')"}}}`)
	if m := p.read(); m["id"] != 903.0 || m["result"] == nil {
		t.Errorf("got %v for a lone surrogate, want a result", m)
	}
	p.alive()
}

func TestHugeLine(t *testing.T) {
	if testing.Short() {
		t.Skip("80 MB")
	}
	f := newFake()
	size := 0
	f.execute = func(_ context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		size = len(req.Code)
		return result(req, "ok"), nil
	}
	p := legacy(t, f)
	res := p.execute(strings.Repeat("a", 80_000_000))
	if got, want := size, 80_000_000; got != want {
		t.Errorf("the engine got %d bytes of code, want %d", got, want)
	}
	if got := structured(res)["stdout"]; got != "ok" {
		t.Errorf("got stdout %v, want ok", got)
	}
}

func TestLineAboveTheBound(t *testing.T) {
	if testing.Short() {
		t.Skip("130 MB")
	}
	p := legacy(t, newFake())
	go func() {
		chunk := strings.Repeat("a", 1<<20)
		for range 130 {
			if _, err := io.WriteString(p.in, chunk); err != nil {
				return
			}
		}
		_, _ = io.WriteString(p.in, "\n")
	}()
	if m := p.read(); errorCode(m) != -32600 {
		t.Errorf("got %v, want error -32600", m)
	}
	p.alive()
}

func TestPipelined(t *testing.T) {
	p := legacy(t, newFake())
	const n = 200
	go func() {
		for i := range n {
			_, _ = fmt.Fprintf(p.in, `{"jsonrpc":"2.0","id":"q%d","method":"tools/call","params":{"name":"execute_code","arguments":{"code":"c%d"}}}`+"\n", i, i)
		}
	}()
	seen := map[any]bool{}
	for range n {
		m := p.read()
		res, _ := m["result"].(map[string]any)
		id := fmt.Sprint(m["id"])
		if got, want := structured(res)["stdout"], "c"+strings.TrimPrefix(id, "q")+"\n"; got != want {
			t.Fatalf("call %s: stdout = %v, want %v", id, got, want)
		}
		seen[id] = true
	}
	if got := len(seen); got != n {
		t.Errorf("%d different answers, want %d", got, n)
	}
}

func TestCancelledCallEndsTheRun(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	id := p.begin("tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "block"}})
	<-f.started
	p.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"x"}}`, id))
	select {
	case <-f.cancelled:
	case <-time.NewTimer(time.Minute).C:
		t.Fatal("got a context of the engine that goes on, want it cancelled")
	}
	p.alive()
}

func TestPanicIsSurvived(t *testing.T) {
	p := legacy(t, newFake())
	res := p.call("execute_code", map[string]any{"code": "panic"})
	body := structured(res)
	if res["isError"] != true || body["error"] != "internal" || body["id"] == nil || strings.Contains(fmt.Sprint(res), "planted") {
		t.Errorf("got %v for a panic, want an internal error", res)
	}
	p.alive()
}

func TestInternalErrorTellsNothing(t *testing.T) {
	res := legacy(t, newFake()).call("execute_code", map[string]any{"code": "secret fault"})
	if body := structured(res); body["error"] != "internal" || body["id"] == nil || strings.Contains(fmt.Sprint(res), "/var/secret") {
		t.Errorf("got %v, want internal with an id and without the path", res)
	}
}

// TestCancelledCallIsNoFault: a step that fails because its call was cancelled is not the
// server's fault. A client could fill the operator's log with such faults.
func TestCancelledCallIsNoFault(t *testing.T) {
	res := legacy(t, newFake()).call("execute_code", map[string]any{"code": "cancelled fault"})
	if body := structured(res); body["error"] != "cancelled" || body["id"] != nil {
		t.Errorf("got %v, want cancelled without an id", res)
	}
}

func TestProgress(t *testing.T) {
	f := newFake()
	f.execute = func(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		select {
		case <-ctx.Done():
		case <-time.NewTimer(2300 * time.Millisecond).C:
		}
		return result(req, "done"), nil
	}
	p := legacy(t, f)
	m := p.request("tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "x"}, "_meta": map[string]any{"progressToken": "tok"}})
	if m["result"] == nil {
		t.Fatalf("got %v, want a result", m)
	}
	if got, want := len(p.notes), 2; got != want {
		t.Fatalf("%d notifications, want %d: %v", got, want, p.notes)
	}
	last := 0.0
	for _, n := range p.notes {
		params, _ := n["params"].(map[string]any)
		v, _ := params["progress"].(float64)
		if n["method"] != "notifications/progress" || params["progressToken"] != "tok" || v <= last {
			t.Errorf("got notification %v after %v, want rising progress", n, last)
		}
		last = v
	}
	select {
	case m := <-p.lines:
		t.Errorf("got %v after the result, want nothing", m)
	case <-time.NewTimer(1200 * time.Millisecond).C:
	}
}

// TestProgressHasTheOutput: the output of a run is sent as progress while it runs, for each
// tool, and not after the answer.
func TestProgressHasTheOutput(t *testing.T) {
	for _, tool := range []string{"execute_code", "sandbox_run_python"} {
		f := newFake()
		heard := make(chan struct{})
		f.execute = func(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
			if req.Stdout == nil || req.Stderr == nil || req.Shown == nil {
				return result(req, "nobody listens"), nil
			}
			_, _ = fmt.Fprint(req.Stdout, "so far")
			req.Shown.WriteResult(sandboxmcp.RichResult{"image/png": "aGk="})
			select {
			case <-heard:
			case <-ctx.Done():
			}
			_, _ = fmt.Fprint(req.Stderr, "at the end")
			return result(req, "done"), nil
		}
		p := legacy(t, f)
		id := p.begin("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"code": "x"}, "_meta": map[string]any{"progressToken": 7}})
		m := p.read()
		params, _ := m["params"].(map[string]any)
		if got, want := params["message"], "[display image/png]"; m["method"] != "notifications/progress" || params["progressToken"] != 7.0 || got != want {
			t.Fatalf("%s: got %v first, want the message %q", tool, m, want)
		}
		close(heard)
		if res, _ := p.answer(id)["result"].(map[string]any); structured(res)["stdout"] != "done" {
			t.Errorf("%s: got %v, want done on stdout", tool, res)
		}
		before := len(p.notes)
		p.request("ping", nil)
		if after := p.notes[before:]; len(after) > 0 {
			t.Errorf("got %v after the answer, want nothing", after)
		}
		p = legacy(t, f)
		if res := p.call(tool, map[string]any{"code": "x"}); structured(res)["stdout"] != "nobody listens" {
			t.Errorf("%s: got %v without a token, want the result alone", tool, res)
		}
	}
}

// ends waits for the end of ServeStdio and checks that the
// call's context was cancelled.
func ends(t *testing.T, f *fake, p *pipe) error {
	t.Helper()
	start := time.Now()
	select {
	case err := <-p.ended:
		t.Logf("ended after %v", time.Since(start).Round(time.Millisecond))
		select {
		case <-f.cancelled:
		default:
			t.Error("got a call that goes on, want it cancelled")
		}
		return err
	case <-time.NewTimer(time.Minute).C:
		t.Fatal("got a ServeStdio that goes on, want its end")
	}
	return nil
}

func blocked(t *testing.T) (*fake, *pipe) {
	t.Helper()
	f := newFake()
	p := legacy(t, f)
	p.begin("tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "block"}})
	<-f.started
	return f, p
}

func TestEndOfInputEndsEverything(t *testing.T) {
	f, p := blocked(t)
	_ = p.in.Close()
	if err := ends(t, f, p); err != nil {
		t.Errorf("got error %v, want none", err)
	}
}

func TestCancelEndsEverything(t *testing.T) {
	f, p := blocked(t)
	p.stop()
	if err := ends(t, f, p); err != nil {
		t.Errorf("got error %v, want none", err)
	}
}

func TestVanishedClientEndsEverything(t *testing.T) {
	f, p := blocked(t)
	_ = p.out.CloseWithError(io.ErrClosedPipe)
	p.line(`{"jsonrpc":"2.0","id":77,"method":"ping"}`)
	if err := ends(t, f, p); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got error %v, want that of the write", err)
	}
}

// stalled is an output that says when it is first written to.
type stalled struct {
	*io.PipeWriter
	begun func()
}

func (s stalled) Write(p []byte) (int, error) {
	s.begun()
	return s.PipeWriter.Write(p)
}

func TestStalledClientDoesNotHoldTheEnd(t *testing.T) {
	for name, end := range map[string]func(in io.Closer, stop func()){
		"stop":         func(_ io.Closer, stop func()) { stop() },
		"end of input": func(in io.Closer, _ func()) { _ = in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inR, inW := io.Pipe()
			_, pipe := io.Pipe() // nothing reads it
			begun := make(chan struct{})
			outW := stalled{pipe, sync.OnceFunc(func() { close(begun) })}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- newServer(newFake()).ServeStdio(ctx, inR, outW) }()
			if _, err := io.WriteString(inW, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`+"\n"); err != nil {
				t.Fatal(err)
			}
			<-begun
			end(inW, stop)
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("got %v from ServeStdio, want no error", err)
				}
			case <-time.NewTimer(time.Minute).C:
				t.Error("got a ServeStdio that goes on, want its end")
			}
		})
	}
}

func TestIdleListenerDoesNotDelayTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
		p := dial(t, newFake())
		p.begin("subscriptions/listen", map[string]any{"_meta": meta, "notifications": map[string]any{"toolsListChanged": true}})
		if m := p.read(); m["method"] != "notifications/subscriptions/acknowledged" {
			t.Fatalf("got %v for listen, want its acknowledgment", m)
		}
		_ = p.in.Close()
		synctest.Wait() // the clock of the bubble stands still, so no grace period ends
		select {
		case err := <-p.ended:
			if err != nil {
				t.Errorf("got %v from ServeStdio, want no error", err)
			}
		default:
			t.Error("got a server that waits for a timer after the end of its input, want its end")
		}
	})
}

// atEnd is an input that has ended. It is called when that is noticed first.
func atEnd(fn func()) io.Reader {
	once := sync.OnceFunc(fn)
	return readFunc(func([]byte) (int, error) { once(); return 0, io.EOF })
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestPipedInput is `printf … | sandboxmcp serve`: the input has ended before
// the first call is answered.
func TestPipedInput(t *testing.T) {
	f := newFake()
	ended := make(chan struct{})
	f.execute = func(_ context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		<-ended
		return result(req, "late"), nil
	}
	var out strings.Builder
	in := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"x"}}}
`
	if err := newServer(f).ServeStdio(t.Context(), io.MultiReader(strings.NewReader(in), atEnd(func() { close(ended) })), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"id":2,"result"`) {
		t.Errorf("got %.300s, want an answer to the call", out.String())
	}
}

// TestSDKClient has the SDK's own client read what we wrote, in both eras.
func TestSDKClient(t *testing.T) {
	for _, version := range []string{"", "2025-06-18"} {
		f := newFake()
		f.output["stdout"] = []byte("whole")
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- newServer(f).ServeStdio(t.Context(), inR, outW) }()
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "hi"}})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(res.StructuredContent)
		if !strings.Contains(string(b), `"stdout":"hi\n"`) {
			t.Errorf("got structured content %s, want hi on stdout", b)
		}
		r, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "run://" + runID + "/stdout"})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Contents[0].Text; got != "whole" {
			t.Errorf("got resource %q, want whole", got)
		}
		if version == "" && r.CacheScope != "private" {
			t.Errorf("got cacheScope %q, want private", r.CacheScope)
		}
		_ = session.Close()
		if err := <-ended; err != nil {
			t.Errorf("got %v from ServeStdio, want no error", err)
		}
	}
}

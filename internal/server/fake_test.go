package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

const runID = "11111111-2222-4333-8444-555555555555"

// unused are the verbs that no tool calls; one that is called panics.
type unused struct{ sandboxmcp.Service }

// fake is an engine that runs nothing.
type fake struct {
	unused

	mu        sync.Mutex
	requests  []sandboxmcp.Request
	callers   []sandboxmcp.Caller // of requests
	lookups   []sandboxmcp.Lookup
	started   chan struct{} // receives when a blocking Execute began
	cancelled chan struct{} // receives when its ctx ended
	execute   func(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error)
	files     map[string][]byte
	output    map[string][]byte
	onOutput  func()
	moreFiles bool   // a session has more files than a list names
	soFar     string // stdout of the run, which goes on; empty: it has ended
	results   []sandboxmcp.RichResult
	queries   []sandboxmcp.AuditQuery
	config    server.Config // what a test sets besides
	changes   []sandboxmcp.LimitsChange
	kept      sandboxmcp.Limits
	fakeSessions
	fakeGate
	fakeEvents
}

func newFake() *fake {
	return &fake{started: make(chan struct{}, 8), cancelled: make(chan struct{}, 8), files: map[string][]byte{}, output: map[string][]byte{}, fakeSessions: newFakeSessions(), fakeGate: newFakeGate()}
}

// stranger fails a call of a caller that is not the one of the pipe, of a form, or
// of a link.
func stranger(c sandboxmcp.Caller) error {
	if strings.HasPrefix(strings.TrimPrefix(c.Actor, "mcp form of "), "http") || c.Namespace == "team" && slices.Contains([]string{"mcp", "mcp form"}, c.Actor) {
		return nil
	}
	return fmt.Errorf("got caller %+v, want that of the server", c)
}

func result(req sandboxmcp.Request, stdout string) sandboxmcp.Result {
	return sandboxmcp.Result{
		RequestID: runID, Success: true, Stdout: stdout, DurationMS: 1.5, Language: sandboxmcp.Python,
		Namespace: "team", Status: sandboxmcp.StatusCompleted, Backend: "process",
	}
}

func (f *fake) Execute(ctx context.Context, c sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.Result{}, err
	}
	f.mu.Lock()
	f.requests, f.callers = append(f.requests, req), append(f.callers, c)
	f.mu.Unlock()
	switch {
	case f.execute != nil:
		return f.execute(ctx, req)
	case req.Code == "block":
		f.started <- struct{}{}
		<-ctx.Done()
		f.cancelled <- struct{}{}
		r := result(req, "")
		r.Status, r.ExitCode, r.Success = sandboxmcp.StatusCancelled, sandboxmcp.ExitStopped, false
		return r, nil
	case req.Code == "panic":
		panic("planted")
	case req.Code == "cancelled fault":
		return sandboxmcp.Result{}, fmt.Errorf("look into the vault: %w", context.Canceled)
	case req.Code == "secret fault":
		return sandboxmcp.Result{}, fmt.Errorf("open /var/secret/path: %w", errors.New("denied"))
	}
	return result(req, req.Code+"\n"), nil
}

func (f *fake) Start(_ context.Context, c sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.Result{}, err
	}
	r := result(req, "")
	r.Status, r.Success = sandboxmcp.StatusRunning, false
	return r, nil
}

func (f *fake) Lookup(_ context.Context, c sandboxmcp.Caller, l sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.Result{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookups = append(f.lookups, l)
	if l.RequestID != runID {
		return sandboxmcp.Result{}, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "request %s is not known", l.RequestID)
	}
	r := result(sandboxmcp.Request{}, "")
	r.Receipt = &sandboxmcp.Receipt{}
	for name, data := range f.files {
		r.Artifacts = append(r.Artifacts, artifact(name, data))
	}
	r.Results = f.results
	if f.soFar != "" {
		r.Status, r.Stdout, r.Stderr = sandboxmcp.StatusRunning, f.soFar, "of "+f.soFar
	}
	return r, nil
}

func artifact(name string, data []byte) sandboxmcp.Artifact {
	mime := "application/octet-stream"
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		switch name[i+1:] {
		case "png", "jpeg", "gif":
			mime = "image/" + name[i+1:]
		case "txt":
			mime = "text/plain; charset=utf-8"
		}
	}
	return sandboxmcp.Artifact{
		Name: name, ContentB64: data, SizeBytes: int64(len(data)), SHA256: "sum-" + name, Path: "/mnt/data/" + name,
		MIMEType: mime, URI: "artifact://" + runID + "/" + url.PathEscape(name),
	}
}

// Jobs lists nothing.
func (f *fake) Jobs(context.Context, sandboxmcp.Caller) ([]sandboxmcp.Job, error) {
	return []sandboxmcp.Job{}, nil
}

func (f *fake) Output(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, stream string) ([]byte, error) {
	if err := stranger(c); err != nil {
		return nil, err
	}
	if f.onOutput != nil {
		f.onOutput()
	}
	if data, ok := f.output[stream]; ok && id == runID {
		return data, nil
	}
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "request %s is not known", id)
}

func (f *fake) ArtifactContent(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.Artifact{}, err
	}
	if id != runID {
		return sandboxmcp.Artifact{}, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "request %s is not known", id)
	}
	if data, ok := f.files[path]; ok {
		return artifact(path, data), nil
	}
	return sandboxmcp.Artifact{}, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "there is no %s", path)
}

func (f *fake) Runtimes(context.Context) (sandboxmcp.Runtimes, error) {
	return sandboxmcp.Runtimes{
		Runtimes: []sandboxmcp.Runtime{{Language: sandboxmcp.Python, Available: true, Version: "3.12.1"}},
		Backends: []sandboxmcp.BackendInfo{{Name: "process", Available: true, Isolation: &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2}}, {Name: "docker", Reason: "none"}},
	}, nil
}

func (f *fake) Stats(context.Context) (sandboxmcp.Stats, error) {
	return sandboxmcp.Stats{Queue: sandboxmcp.QueueStats{MaxConcurrent: 4}, Record: &sandboxmcp.AuditSigning{Signed: true}}, nil
}

func (f *fake) last(t testing.TB) sandboxmcp.Request {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.requests) == 0 {
		t.Fatal("got no request to the engine, want one")
	}
	return f.requests[len(f.requests)-1]
}

// pipe is a client that speaks raw lines with a server over pipes.
type pipe struct {
	t     testing.TB
	in    *io.PipeWriter
	out   *io.PipeReader
	lines chan map[string]any
	ended chan error
	stop  context.CancelFunc
	next  int
	notes []map[string]any
}

func newServer(f *fake) *server.Server {
	c := f.config
	c.Engine, c.Version, c.Logger, c.Identity = f, "1.2.3", slog.New(slog.DiscardHandler), sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"team"}, Actor: "mcp"}
	return server.New(c)
}

func dial(t testing.TB, f *fake) *pipe {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	p := &pipe{t: t, in: inW, out: outR, lines: make(chan map[string]any, 64), ended: make(chan error, 1), stop: stop}
	go func() {
		err := newServer(f).ServeStdio(ctx, inR, outW)
		_ = outW.Close()
		p.ended <- err
	}()
	go func() {
		defer close(p.lines)
		r := bufio.NewReaderSize(outR, 1<<20)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var m map[string]any
			if err := json.Unmarshal(line, &m); err != nil || m["jsonrpc"] != "2.0" {
				t.Errorf("got %.200q from the server, want JSON-RPC", line)
			}
			p.lines <- m
		}
	}()
	t.Cleanup(func() {
		stop()
		_ = inW.Close()
		_ = outR.Close()
	})
	return p
}

// legacy is a pipe after its handshake.
func legacy(t testing.TB, f *fake) *pipe {
	t.Helper()
	p := dial(t, f)
	p.hello("2025-06-18")
	return p
}

func (p *pipe) hello(version string) map[string]any {
	p.t.Helper()
	m := p.request("initialize", map[string]any{"protocolVersion": version, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	p.line(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	res, _ := m["result"].(map[string]any)
	if res == nil {
		p.t.Fatalf("got %v from initialize, want the server's capabilities", m)
	}
	return res
}

func (p *pipe) line(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, s+"\n"); err != nil {
		p.t.Fatalf("got %v from a write to the server, want no error", err)
	}
}

// read returns the next message of the server.
func (p *pipe) read() map[string]any {
	p.t.Helper()
	select {
	case m, ok := <-p.lines:
		if !ok {
			p.t.Fatal("got the end of the output, want an answer")
		}
		return m
	case <-time.NewTimer(20 * time.Second).C:
		p.t.Fatal("got nothing for 20 s, want an answer")
	}
	return nil
}

func (p *pipe) begin(method string, params any) int {
	p.t.Helper()
	p.next++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": p.next, "method": method, "params": params})
	if err != nil {
		p.t.Fatal(err)
	}
	p.line(string(b))
	return p.next
}

func (p *pipe) answer(id int) map[string]any {
	p.t.Helper()
	for {
		m := p.read()
		if m["id"] == float64(id) {
			return m
		}
		p.notes = append(p.notes, m)
	}
}

func (p *pipe) request(method string, params any) map[string]any {
	p.t.Helper()
	return p.answer(p.begin(method, params))
}

// call is a tool call: its result.
func (p *pipe) call(tool string, args map[string]any) map[string]any {
	p.t.Helper()
	params := map[string]any{"name": tool, "arguments": args}
	if raw, ok := args[rawArguments]; ok {
		params["arguments"] = raw
	}
	m := p.request("tools/call", params)
	res, _ := m["result"].(map[string]any)
	if res == nil {
		p.t.Fatalf("%s: got %v, want a result", tool, m)
	}
	return res
}

func (p *pipe) execute(code string) map[string]any {
	p.t.Helper()
	res := p.call("execute_code", map[string]any{"code": code})
	if res["isError"] == true {
		p.t.Fatalf("got %v from execute_code, want no error", res)
	}
	return res
}

// alive fails the test when the server does not answer any more.
func (p *pipe) alive() {
	p.t.Helper()
	if got, want := structured(p.execute("still"))["stdout"], "still\n"; got != want {
		p.t.Errorf("stdout = %v, want %v", got, want)
	}
}

func structured(res map[string]any) map[string]any {
	m, _ := res["structuredContent"].(map[string]any)
	return m
}

func blocks(res map[string]any, kind string) []map[string]any {
	var out []map[string]any
	list, _ := res["content"].([]any)
	for _, c := range list {
		if m, _ := c.(map[string]any); m["type"] == kind {
			out = append(out, m)
		}
	}
	return out
}

func errorCode(m map[string]any) int {
	e, _ := m["error"].(map[string]any)
	code, _ := e["code"].(float64)
	return int(code)
}

package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// BenchmarkExecuteCode measures what the door adds to a run: one raw line in,
// one line out, and an engine that takes no time.
func BenchmarkExecuteCode(b *testing.B) {
	for _, size := range []int{10, 1_000, 39_000, 1_000_000} {
		b.Run(fmt.Sprintf("stdout=%d", size), func(b *testing.B) {
			f := newFake()
			r := result(sandboxmcp.Request{}, strings.Repeat("0123456 \n", size/9+1)[:size])
			r.Isolation = &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2, Walls: strings.Fields("user mount pid net ipc uts cgroup landlock seccomp"), Kernel: "6.18.0"}
			f.execute = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) { return r, nil }
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			go func() { _ = newServer(f).ServeStdio(b.Context(), inR, outW); _ = outW.Close() }()
			out := bufio.NewReaderSize(outR, 1<<20)
			ask := func(line string) {
				if _, err := io.WriteString(inW, line+"\n"); err != nil {
					b.Fatal(err)
				}
				if _, err := out.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
			ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
			if _, err := io.WriteString(inW, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
				b.Fatal(err)
			}
			n := 1
			b.ReportAllocs()
			for b.Loop() {
				ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(6*7)","timeout_seconds":30}}}`, n))
				n++
			}
			_ = inW.Close()
			_, _ = io.Copy(io.Discard, out)
		})
	}
}

// BenchmarkExecuteCodeOverHTTP measures what HTTP adds to a run, with the client in the same
// process.
func BenchmarkExecuteCodeOverHTTP(b *testing.B) {
	f := newFake()
	w := openWeb(b, f)
	for name, p := range map[string]*peer{"modern": w.modernPeer("ka"), "legacy": w.legacyPeer("ka", "2025-06-18")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.call("execute_code", map[string]any{"code": "1"})
			}
		})
	}
}

// BenchmarkPlainCall measures what the server does for a plain call over HTTP, without a network,
// without a door, and with an engine that takes no time.
func BenchmarkPlainCall(b *testing.B) {
	f := newFake()
	r := result(sandboxmcp.Request{}, "42\n")
	r.Isolation = &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2, Walls: strings.Fields("user mount pid net ipc uts cgroup landlock seccomp"), Kernel: "6.18.0"}
	r.Receipt = &sandboxmcp.Receipt{PayloadType: "application/vnd.in-toto+json", Payload: strings.Repeat("eyJfdHlw", 280)}
	f.execute = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) { return r, nil }
	c := f.config
	c.Engine, c.HTTP = f, true
	h := server.New(c).HTTP(b.Context())
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(42)","language":"python"},"_meta":{` + plainMeta + `}}}`
	ctx := door.WithIdentity(b.Context(), sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"home"}, Actor: "http"})
	b.ReportAllocs()
	for b.Loop() {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, server.MCPPath, strings.NewReader(body))
		for name, value := range plainHeaders {
			req.Header.Set(name, value)
		}
		req.Header.Set("Mcp-Name", "execute_code")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, req); w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}

package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
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

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/cli"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// agent speaks with a server on its stdin and stdout.
type agent struct {
	t     *testing.T
	in    io.Writer
	lines chan map[string]any
}

// serve starts a server that ends with the test.
func serve(t *testing.T) *agent {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(context.WithoutCancel(t.Context()), cli.Process{
			Args: []string{"sandboxmcp", "serve"}, Env: []string{"HOME=" + filepath.Dir(state), "PATH=" + os.Getenv("PATH"), "SANDBOXMCP_STATE_DIR=" + state},
			Stdin: inR, Stdout: outW, Stderr: io.Discard,
		})
		_ = outW.Close()
	}()
	a := &agent{t: t, in: inW, lines: make(chan map[string]any, 256)}
	go func() {
		defer close(a.lines)
		for s := bufio.NewScanner(outR); s.Scan(); {
			m := map[string]any{}
			if err := json.Unmarshal(s.Bytes(), &m); err != nil {
				t.Errorf("got %.200q from the server, want an answer in JSON", s.Text())
			}
			a.lines <- m
		}
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		select {
		case <-ended:
		case <-time.NewTimer(20 * time.Second).C:
			t.Error("got a server that lives on, want its end")
		}
	})
	a.send(0, "initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	a.answer()
	return a
}

func (a *agent) send(id int, method string, params any) {
	a.t.Helper()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err == nil {
		_, err = fmt.Fprintf(a.in, "%s\n", line)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// call sends a tool call that wants to hear of its progress.
func (a *agent) call(id int, tool string, args map[string]any) {
	a.t.Helper()
	a.send(id, "tools/call", map[string]any{"name": tool, "arguments": args, "_meta": map[string]any{"progressToken": id}})
}

// answer is the next answer, whichever call it is of, and what it says.
func (a *agent) answer() (id float64, body map[string]any) {
	a.t.Helper()
	end := time.NewTimer(30 * time.Second)
	defer end.Stop()
	for {
		select {
		case m, ok := <-a.lines:
			if !ok {
				a.t.Fatal("got the end of the server, want an answer")
			}
			if id, ok := m["id"].(float64); ok {
				res, _ := m["result"].(map[string]any)
				body, _ := res["structuredContent"].(map[string]any)
				return id, body
			}
		case <-end.C:
			a.t.Fatal("got no answer of the server, want one")
		}
	}
}

// TestHammeredSession: of 16 calls at once for one session over stdio, one runs, and the other
// 15 are answered session_busy at once. The running one waits for a file that is put only
// after these answers.
func TestHammeredSession(t *testing.T) {
	testkit.Sandbox(t, canRun(), "this machine cannot build a sandbox")
	a := serve(t)
	const sides, rounds = 16, 8
	next := 0
	for tool, args := range map[string]map[string]any{
		"execute_code":       {"session_id": "hammered", "code": "import os, time\nwhile not os.path.exists('go'): time.sleep(.005)\nos.remove('go')"},
		"sandbox_run_python": {"session_id": "five", "code": "import os, time\nwhile not os.path.exists('go'): time.sleep(.005)\nos.remove('go')"},
	} {
		next++ // the session is made first, so that a file can be put while it runs
		if tool == "execute_code" {
			a.call(next, "create_session", map[string]any{"session_id": args["session_id"]})
		} else {
			a.call(next, "sandbox_upload_file", map[string]any{"session_id": args["session_id"], "filename": "first", "content_base64": "eA=="})
		}
		if _, body := a.answer(); body["session_id"] != args["session_id"] {
			t.Fatalf("%s: got %v, want the session that was made", tool, body)
		}
		for round := range rounds {
			first := next + 1
			for range sides {
				next++
				a.call(next, tool, args)
			}
			told := map[float64]bool{}
			for range sides - 1 {
				id, body := a.answer()
				if body["error"] != "session_busy" || told[id] || id < float64(first) {
					t.Fatalf("%s, round %d: got for call %v %v, want session_busy once", tool, round, id, body)
				}
				told[id] = true
			}
			next++
			a.call(next, "sandbox_upload_file", map[string]any{"session_id": args["session_id"], "filename": "go", "content_base64": "eA=="})
			for range 2 {
				id, body := a.answer()
				switch {
				case id == float64(next) && body["path"] == "/mnt/data/go":
				case id != float64(next) && !told[id] && body["status"] == "completed":
				default:
					t.Fatalf("%s, round %d: got for call %v %v, want its own result once", tool, round, id, body)
				}
			}
		}
	}
}

package clients_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// toolResult is the answer to a tool call as the protocol has it.
type toolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured map[string]any `json:"structuredContent"`
	IsError    bool           `json:"isError"`
}

// text is the answer's only block, decoded: a client shows that or Structured.
func (r toolResult) text(t *testing.T) map[string]any {
	t.Helper()
	var body map[string]any
	if len(r.Content) != 1 || json.Unmarshal([]byte(r.Content[0].Text), &body) != nil {
		t.Errorf("content = %v, want one block of JSON", r.Content)
	}
	return body
}

// TestPrograms: the SDKs of other languages, as a program uses them, over stdio and HTTP.
func TestPrograms(t *testing.T) {
	node, python := installed(t, "node"), installed(t, "python", "bin", "python")
	bin := built(t)
	for _, p := range []struct {
		name, interpreter, file, mode string
		paths                         []string // of HTTP
	}{
		{"TypeScript 1", node, "typescript.mjs", "v1", []string{"/mcp", "/sse"}},
		{"TypeScript 2", node, "typescript.mjs", "v2", []string{"/mcp"}},
		{"TypeScript 2, protocol of 2026", node, "typescript.mjs", "v2-pinned", []string{"/mcp"}},
		{"Python", python, "python.py", "auto", []string{"/mcp"}},
		{"Python, with a handshake", python, "python.py", "legacy", []string{"/mcp"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			c := newClient(t, bin, "http://127.0.0.1:9")
			file := c.writeProgram(p.file)
			// The shell says how the server ended: a client that has to end it by a
			// signal ends the shell with it, and nothing is written.
			status := filepath.Join(c.home, "status")
			out, exit := c.run([]string{"SANDBOXMCP_STATE_DIR=" + c.home + "/state"},
				p.interpreter, file, p.mode, "/bin/sh", "-c", `"$0" serve; echo $? >"$1"`, bin, status)
			if exit != 0 {
				t.Fatalf("exit code %d", exit)
			}
			if b, err := os.ReadFile(status); string(b) != "0\n" {
				t.Errorf("after the end of its input the server ended with %q (%v), want 0", b, err)
			}
			checkProgram(t, out)
		})
		for _, path := range p.paths {
			t.Run(p.name+" over HTTP at "+path, func(t *testing.T) {
				t.Parallel()
				c := newClient(t, bin, "http://127.0.0.1:9")
				file := c.writeProgram(p.file)
				url, end := c.serveHTTP()
				out, exit := c.runBeside(p.interpreter, file, p.mode, strings.TrimSuffix(url, "/mcp")+path)
				if exit != 0 {
					t.Fatalf("exit code %d: %s", exit, out)
				}
				checkProgram(t, out)
				end()
			})
		}
	}
}

// checkProgram compares what a program has seen with what it has to see.
func checkProgram(t *testing.T, out string) {
	t.Helper()
	var seen struct {
		Tools           []string
		Answer, Failure toolResult
		Progress        int
		Cancelled       bool
		Active          int
	}
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(served(t))), slices.Sorted(slices.Values(seen.Tools))); d != "" {
		t.Errorf("tools (-want +got):\n%s", d)
	}
	a := seen.Answer
	if a.IsError || a.Structured["stdout"] != "42\n" || a.text(t)["stdout"] != "42\n" {
		t.Errorf("answer = %+v", a)
	}
	if f := seen.Failure; !f.IsError || f.Structured["error"] != "session_not_found" || f.text(t)["error"] != "session_not_found" {
		t.Errorf("failure = %+v", f)
	}
	if seen.Progress < 1 || !seen.Cancelled || seen.Active != 0 {
		t.Errorf("progress %d, cancelled %v, then %d active; want 1 at least, true and 0", seen.Progress, seen.Cancelled, seen.Active)
	}
}

// writeProgram puts a program of testdata where it finds the npm packages.
func (c *client) writeProgram(name string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "programs", name))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(installed(c.t, "node_modules"), filepath.Join(c.home, "node_modules")); err != nil {
		c.t.Fatal(err)
	}
	return c.write(name, text)
}

// TestInspector: the protocol's own inspector, which also looks for schemas that
// some hosts cannot read.
func TestInspector(t *testing.T) {
	node, inspector := installed(t, "node"), installed(t, "node_modules/.bin/mcp-inspector")
	bin := built(t)
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			c := newClient(t, bin, "http://127.0.0.1:9")
			inspect(t, func(args ...string) (string, int) {
				return c.run(nil, append([]string{node, inspector, "--cli", bin, "serve", "--protocol-era", era}, args...)...)
			})
		})
	}
	// The transport of 2024 has no later version.
	for _, over := range []struct{ era, transport, path string }{{"legacy", "http", "/mcp"}, {"modern", "http", "/mcp"}, {"legacy", "sse", "/sse"}} {
		t.Run(over.era+" over "+over.transport, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, bin, "http://127.0.0.1:9")
			url, end := c.serveHTTP()
			url = strings.TrimSuffix(url, "/mcp") + over.path
			inspect(t, func(args ...string) (string, int) {
				return c.runBeside(append([]string{node, inspector, "--cli", url, "--transport", over.transport, "--protocol-era", over.era}, args...)...)
			})
			end()
		})
	}
}

// inspect compares what the inspector prints with what it has to print. run runs it on a server.
func inspect(t *testing.T, run func(args ...string) (out string, exit int)) {
	t.Helper()
	ask := func(want int, args ...string) string {
		t.Helper()
		out, exit := run(args...)
		if exit != want {
			t.Errorf("%v: exit code %d, want %d\n%s", args, exit, want, out)
		}
		return out
	}
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal([]byte(ask(0, "--strict", "--method", "tools/list")), &list); err != nil || len(list.Tools) != len(served(t)) {
		t.Errorf("%d tools and %v, want %d", len(list.Tools), err, len(served(t)))
	}
	var answer, failure toolResult
	out := ask(0, "--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", "code=print(6 * 7)")
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Structured["stdout"] != "42\n" {
		t.Errorf("answer = %s (%v)", out, err)
	}
	out = ask(5, "--method", "tools/call", "--tool-name", "sandbox_list_artifacts", "--tool-arg", "session_id=nobody")
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&failure); err != nil || !failure.IsError || failure.text(t)["error"] != "session_not_found" {
		t.Errorf("failure = %s (%v)", out, err)
	}
	if out = ask(0, "--method", "resources/templates/list"); !strings.Contains(out, "run://{request_id}/{+part}") {
		t.Errorf("templates = %s", out)
	}
}

//go:build linux

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

const stopLaw = 3 * time.Second // that a server may take to end

// TestServerEndsOnSIGTERM: within 3 s, whatever runs: programs and cells that
// ignore everything and hold sockets that linger, runs in the queue, sessions,
// and an agent that reads no answer.
func TestServerEndsOnSIGTERM(t *testing.T) {
	testkit.Sandbox(t, canRun(), "this machine cannot build a sandbox")
	for _, command := range []string{"serve", "background-server"} {
		t.Run(command, func(t *testing.T) {
			dir := t.TempDir()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(dir, "sandboxmcp")
			if err := os.Symlink(self, program); err != nil {
				t.Fatal(err)
			}
			env := []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "SANDBOXMCP_STATE_DIR=" + filepath.Join(dir, "state"), "TMPDIR=" + os.Getenv("TMPDIR"), "SANDBOXMCP_MAX_CONCURRENT=2"}
			server := exec.CommandContext(t.Context(), program, command)
			server.Env = env
			in, err := server.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			wait := sync.OnceFunc(func() {
				_, _ = io.Copy(io.Discard, out)
				_ = server.Wait()
				close(ended)
			})
			defer func() {
				_ = server.Process.Kill()
				wait()
			}()
			var callers []*exec.Cmd
			held := func() {
				for _, id := range []string{"one", "two"} {
					testkit.Until(t, "session "+id+" is held", func() bool {
						list := exec.CommandContext(t.Context(), program, "files", "list", id)
						list.Env = env
						text, err := list.Output()
						return err == nil && strings.Contains(string(text), "begun")
					})
				}
			}
			if command == "serve" {
				loadOverStdio(t, in, out, held)
			} else {
				callers = loadOverCommands(t, program, filepath.Join(dir, "state"), env)
				held()
			}
			asked := time.Now()
			if err := server.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			go wait()
			late := time.NewTimer(2 * stopLaw) // twice, for a machine that is busy
			defer late.Stop()
			select {
			case <-ended:
				t.Logf("ended after %v", time.Since(asked).Round(time.Millisecond))
			case <-late.C:
				t.Errorf("got a server that lives %v after SIGTERM, want at most %v", 2*stopLaw, stopLaw)
			}
			for _, c := range callers { // none runs its program again in another server
				if err := c.Wait(); err == nil || !strings.Contains(fmt.Sprint(c.Stderr), "the server ended before the program did") {
					t.Errorf("a command whose server ended: got %v, %s, want that the server ended", err, c.Stderr)
				}
			}
			if isServed(t, filepath.Join(dir, "state")) {
				t.Error("got another server for a program that had begun, want none")
			}
		})
	}
}

// loadOverStdio has an agent start what does not end, in two sessions and in the queue.
func loadOverStdio(t *testing.T, in io.Writer, out io.Reader, held func()) {
	t.Helper()
	send := func(id int, method string, params map[string]any) {
		t.Helper()
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
		if err == nil {
			_, err = fmt.Fprintf(in, "%s\n", line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	send(1, "initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	run := func(id int, session string) {
		arguments := map[string]any{"code": testkit.Hostile(t, "ignores-all.py"), "timeout_seconds": 60}
		if session != "" {
			arguments["session_id"] = session
		}
		send(id, "tools/call", map[string]any{"name": "execute_code", "arguments": arguments, "_meta": map[string]any{"progressToken": id}})
	}
	run(2, "one")
	run(3, "two")
	held()
	for id := range 4 { // these wait in the queue
		run(4+id, "")
	}
}

// loadOverCommands has two commands keep a session busy each.
func loadOverCommands(t *testing.T, program, stateDir string, env []string) (all []*exec.Cmd) {
	t.Helper()
	for _, id := range []string{"one", "two"} {
		testkit.Until(t, "the server answers", func() bool { return isServed(t, stateDir) })
		cmd := exec.CommandContext(t.Context(), program, "run", "--session", id, "--timeout", "60", "-c", testkit.Hostile(t, "ignores-all.py"))
		cmd.Env, cmd.Stderr = env, &bytes.Buffer{}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return all
}

func isServed(t *testing.T, stateDir string) bool {
	t.Helper()
	servers, err := api.Peers(t.Context(), stateDir)
	return err == nil && len(servers) > 0
}

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// handed runs commands beside a server that takes single runs.
type handed struct {
	t       *testing.T
	program string
	dir     string
	server  *exec.Cmd
}

// newHanded starts a server.
func newHanded(t *testing.T) *handed {
	t.Helper()
	testkit.Sandbox(t, canRun(), "this machine cannot build a sandbox")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &handed{t: t, dir: t.TempDir()}
	h.program = filepath.Join(h.dir, "sandboxmcp")
	if err := os.Symlink(self, h.program); err != nil {
		t.Fatal(err)
	}
	h.server = h.command(context.WithoutCancel(t.Context()), "", "background-server")
	if err := h.server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.server.Wait()
	}()
	t.Cleanup(func() {
		_ = h.server.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	testkit.Until(t, "the server answers", func() bool {
		out, _ := h.command(t.Context(), "", "server", "list", "--json").Output()
		return bytes.Contains(out, []byte(`"pid"`))
	})
	return h
}

func (h *handed) command(ctx context.Context, stdin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, h.program, args...)
	cmd.Dir = h.dir
	cmd.Env = []string{"HOME=" + h.dir, "PATH=" + os.Getenv("PATH"), "SANDBOXMCP_STATE_DIR=" + filepath.Join(h.dir, "state"), "TMPDIR=" + os.Getenv("TMPDIR")}
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

// seen is what a caller sees of a command.
type seen struct {
	Status         int
	Stdout, Stderr string
	Files          map[string]string // that --out wrote
}

// see runs a command in a working directory of its own.
func (h *handed) see(stdin string, files map[string]string, args ...string) seen {
	h.t.Helper()
	dir := h.t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	cmd := h.command(h.t.Context(), stdin, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	s := seen{Files: map[string]string{}}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	s.Status, s.Stdout, s.Stderr = cmd.ProcessState.ExitCode(), out.String(), errs.String()
	root := filepath.Join(dir, "out")
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			data, _ := os.ReadFile(path)
			s.Files[strings.TrimPrefix(path, root)] = string(data)
		}
		return nil
	})
	return s
}

// processed returns how many runs the server has executed.
func (h *handed) processed() (n int) {
	h.t.Helper()
	var q struct {
		TotalProcessed int `json:"total_processed"`
		Active         int
	}
	out, err := h.command(h.t.Context(), "", "queue", "status", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &q)
	}
	if err != nil || q.Active != 0 {
		h.t.Fatalf("queue status: got %s, %v, want no active run", out, err)
	}
	return q.TotalProcessed
}

// own is what differs from run to run in a JSON result: ids, times, usage and what is signed.
var own = regexp.MustCompile(`(?m)^(\s*"(?:request_id|duration_ms|created_at|signature|receipt|uri|peak_ram_mb|cpu_seconds|peak_tasks|wall_seconds|payload|sig|keyid)": ).*?(,?)$`)

// TestARunIsTheSameInAServer: whatever the form of a single run, its caller sees the same when a
// live server runs the program as when the command does.
func TestARunIsTheSameInAServer(t *testing.T) {
	h := newHanded(t)
	files := map[string]string{
		"a.py": "import sys\nprint(__file__, sys.argv)", "b.sh": "echo \"$0\"; echo e >&2; exit 4", "c.mjs": "console.log(process.argv.length)",
		"in.txt": "abc\xff\x00", "long.py": "print('x' * 200000)\n",
	}
	for _, c := range []struct {
		name  string
		args  []string
		stdin string
		away  bool // the server does not run it
	}{
		{name: "inline", args: []string{"-c", "print(6*7)"}},
		{name: "a file", args: []string{"a.py"}},
		{name: "a shell script with a status", args: []string{"b.sh"}},
		{name: "node", args: []string{"c.mjs"}},
		{name: "from stdin", args: []string{"-", "-l", "shell"}, stdin: "echo $((6*7))"},
		{name: "stdin of a file", args: []string{"-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", "--stdin", "in.txt"}},
		{name: "stdin of the command", args: []string{"-c", "import sys; print(sys.stdin.read())", "--stdin", "-"}, stdin: "typed"},
		{name: "much output", args: []string{"long.py"}},
		{name: "a raised error", args: []string{"-c", "def f():\n  raise ValueError('boom')\nf()"}},
		{name: "wrong syntax", args: []string{"-c", "print("}},
		{name: "a signal", args: []string{"-l", "shell", "-c", "kill -9 $$"}},
		{name: "a timeout", args: []string{"--timeout", "0.5", "-c", "print('on', flush=True)\nwhile True: pass"}},
		{name: "an output limit", args: []string{"--max-output", "10", "-c", "print('y' * 100)"}},
		{name: "out of memory", args: []string{"--ram", "48", "-c", "b = bytearray(200 << 20)"}},
		{name: "variables", args: []string{"--env", "A=b=c", "--env", "X=\xff", "-c", "import os; print(os.environ['A'], os.environb[b'X'])"}},
		{name: "a secret that is missing", args: []string{"--env", "T=secret://TOKEN", "-c", "print(1)"}, away: true},
		{name: "limits", args: []string{"--cpu", "0.5", "--processes", "3", "-c", "print(1)"}},
		{name: "a limit above its ceiling", args: []string{"--ram", "999999", "-c", "print(1)"}, away: true},
		{name: "a backend", args: []string{"--backend", "process", "-c", "print(1)"}},
		{name: "an unknown backend", args: []string{"--backend", "nope", "-c", "print(1)"}, away: true},
		{name: "a module that is missing", args: []string{"-c", "import nosuchmodule"}},
		{name: "a host that is not open", args: []string{"-c", "import urllib.request as u\ntry: u.urlopen('http://a.example', timeout=5)\nexcept Exception as e: print('no')"}},
		{name: "a granted domain", args: []string{"--allow-domain", "b.example", "-c", "import urllib.request as u\ntry: u.urlopen('http://a.example', timeout=5)\nexcept Exception as e: print('no')"}},
		{name: "files into a directory", args: []string{"--out", "out", "-c", "import os\nos.mkdir('d')\nopen('d/a','w').write('A')\nopen('b','w')\nos.symlink('/etc/passwd','c')"}},
		{name: "JSON", args: []string{"--json", "-c", "import sys\nopen('a','w').write('A')\nopen('empty','w')\nprint(1)\nprint(2, file=sys.stderr)"}},
		{name: "JSON of an error", args: []string{"--json", "-c", "1/0"}},
		{name: "JSON of a refusal", args: []string{"--json", "--ram", "999999", "-c", "print(1)"}, away: true},
		{name: "a person may be asked", args: []string{"--hold", "1", "-c", "print(1)"}, away: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := h.processed()
			got := h.see(c.stdin, files, append([]string{"run"}, c.args...)...)
			if n := h.processed() - before; (n == 1) == c.away {
				t.Errorf("got %d runs in the server, want one: %v", n, !c.away)
			}
			before = h.processed()
			want := h.see(c.stdin, files, append([]string{"run", "--no-server"}, c.args...)...)
			if n := h.processed() - before; n != 0 {
				t.Errorf("--no-server: got %d runs in the server, want none", n)
			}
			for _, s := range []*seen{&got, &want} {
				s.Stdout = own.ReplaceAllString(s.Stdout, "$1$2")
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("in the server (+) and without it (-):\n%s", d)
			}
		})
	}
	h.sameRecord()
}

// sameRecord checks that the record names the same caller for all runs.
func (h *handed) sameRecord() {
	h.t.Helper()
	out, err := h.command(h.t.Context(), "", "audit", "--json", "--limit", "1000").Output()
	if err != nil {
		h.t.Fatal(err)
	}
	var doc struct {
		Entries []struct{ Action, Phase, Actor, Namespace string }
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		h.t.Fatal(err)
	}
	runs := 0
	for _, e := range doc.Entries {
		if e.Action != "execute" {
			continue
		}
		runs++
		if e.Actor != "cli" || e.Namespace != "default" {
			h.t.Errorf("record: got %+v, want the actor cli in the namespace default", e)
		}
	}
	if runs < 40 {
		h.t.Errorf("record: got %d entries of runs, want those of all", runs)
	}
}

// TestOnlyAnAlikeServerIsUsed: a setting starts a server for single runs. Runs with other settings,
// another environment or another user's limits do not use it.
func TestOnlyAnAlikeServerIsUsed(t *testing.T) {
	h := newHanded(t)
	ran := func(want bool, env []string, before ...string) {
		t.Helper()
		n := h.processed()
		cmd := h.command(t.Context(), "", "run", "-c", "print(1)")
		cmd.Env = append(cmd.Env, env...)
		if len(before) > 0 {
			cmd.Args = append(append(before, h.program), cmd.Args[1:]...)
			cmd.Path = "/bin/sh"
		}
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if out, err := cmd.Output(); err != nil || string(out) != "1\n" {
			t.Fatalf("%v %v: got %q, %v, want 1: %s", env, before, out, err, errs.String())
		}
		if got := h.processed() - n; (got == 1) != want {
			t.Errorf("%v %v: got %d runs in the server, want one: %v", env, before, got, want)
		}
	}
	ran(true, nil)
	ran(true, []string{"TERM=xterm", "SANDBOXMCP_MCP_ANSWERS=full", "SANDBOXMCP_MAX_RAM_MB=512"})
	for _, env := range []string{
		"SANDBOXMCP_RUN_SERVER=off", "SANDBOXMCP_MAX_RAM_MB=400", "SANDBOXMCP_NAMESPACE=team", "SANDBOXMCP_VAULT=env", "SANDBOXMCP_SECRET_DEFAULT_T=secret-value",
		"SANDBOXMCP_VAULT=memory", "SANDBOXMCP_AUDIT=memory", "SANDBOX_LOG_LEVEL=ERROR", "SANDBOXMCP_EGRESS_HOLD_SECONDS=1", "PYENV_VERSION=3.12", "SSL_CERT_FILE=/dev/null",
	} {
		ran(false, []string{env})
	}
	ran(false, nil, "sh", "-c", `ulimit -n 900; exec "$0" "$@"`)
	ran(false, nil, "sh", "-c", `umask 002; exec "$0" "$@"`)
	ran(true, nil, "sh", "-c", `cd /; exec "$0" "$@"`)
	// A single run starts a server only if the setting says so.
	list := func() int {
		out, err := h.command(t.Context(), "", "server", "list", "--json").Output()
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(out, []byte(`"pid"`))
	}
	if n := list(); n != 1 {
		t.Errorf("got %d servers, want no other than the one that was started", n)
	}
	for range 2 { // the second uses the one that the first started
		cmd := h.command(t.Context(), "", "run", "-c", "print(2)")
		cmd.Env = append(cmd.Env, "SANDBOXMCP_RUN_SERVER=start", "SANDBOXMCP_MAX_RAM_MB=300")
		if out, err := cmd.Output(); err != nil || string(out) != "2\n" {
			t.Fatalf("got %q, %v, want 2", out, err)
		}
	}
	if n := list(); n != 2 {
		t.Errorf("run_server=start: got %d servers, want another one", n)
	}
	h.stopOthers()
}

// stopOthers stops the servers that commands have started.
func (h *handed) stopOthers() {
	h.t.Helper()
	out, err := h.command(h.t.Context(), "", "server", "list", "--json").Output()
	if err != nil {
		h.t.Fatal(err)
	}
	var doc struct {
		Servers []struct {
			ID  string
			PID int
		}
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		h.t.Fatal(err)
	}
	for _, s := range doc.Servers {
		if s.PID == h.server.Process.Pid {
			continue
		}
		if out, err := h.command(h.t.Context(), "", "server", "stop", s.ID).CombinedOutput(); err != nil {
			h.t.Errorf("stop %s: got %s, %v", s.ID, out, err)
		}
	}
}

// Who starts the tests may ignore SIGINT. That is inherited, and a command that inherits it
// rightly goes on; a signal that is caught here has its default effect there.
func init() { signal.Notify(make(chan os.Signal, 1), os.Interrupt) }

// TestAnInterruptedRunInAServerIsOver: the command returns when nothing of the program lives, with
// the status of an interrupted run.
func TestAnInterruptedRunInAServerIsOver(t *testing.T) {
	h := newHanded(t)
	for _, way := range []string{"--no-server=false", "--no-server"} {
		status, errs := h.during(way, func(cmd *exec.Cmd) { _ = cmd.Process.Signal(os.Interrupt) })
		if status != 130 || errs != "" {
			t.Errorf("%s: got %d and %q, want 130 and nothing on stderr", way, status, errs)
		}
		_ = h.processed() // fails while the run is active
	}
}

// TestAServerThatDiesIsToldAndNothingRunsTwice: the command says what happened and does not run
// the program again.
func TestAServerThatDiesIsToldAndNothingRunsTwice(t *testing.T) {
	h := newHanded(t)
	status, errs := h.during("--no-server=false", func(*exec.Cmd) { _ = h.server.Process.Kill() })
	if status != 125 || !strings.Contains(errs, "the server ended before the program did") {
		t.Errorf("got %d and %q, want 125 and that the server has ended", status, errs)
	}
	out, err := h.command(t.Context(), "", "audit", "--json", "--action", "execute").Output()
	if n := bytes.Count(out, []byte(`"phase": "intent"`)); err != nil || n != 1 {
		t.Errorf("got %d intents in %s, %v, want one", n, out, err)
	}
}

// during starts a run, calls act when its program has begun, and returns how the command ended.
func (h *handed) during(way string, act func(*exec.Cmd)) (status int, stderr string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	cmd := h.command(ctx, "", "run", way, "-c", "import time\nprint('on', flush=True)\ntime.sleep(50)")
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	var begun string
	if _, err := fmt.Fscanln(out, &begun); err != nil || begun != "on" {
		h.t.Fatalf("got %q, %v and %q, want the program's output", begun, err, errs.String())
	}
	act(cmd)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), errs.String()
}

package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

func TestRunInSession(t *testing.T) {
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG"))
	f := having("one")
	f.stdout, f.stderr = "a\x00\xff\n", "e\n"
	f.res = sandboxmcp.Result{
		RequestID: "r", Status: sandboxmcp.StatusFailed, ExitCode: 7,
		Artifacts: []sandboxmcp.Artifact{{Name: "a.txt", SizeBytes: 1, ContentB64: []byte("a")}, {Name: "result-2.png", SizeBytes: 1, ContentB64: []byte("p")}},
		Results: []sandboxmcp.RichResult{
			{"text/plain": "shown", "is_main_result": false},
			{"text/plain": "<Figure>", "image/png": png, "image/svg+xml": "<svg/>", "is_main_result": false},
			{"text/plain": "42", "is_main_result": true},
		},
	}
	env := servers(t, having("other"), f)
	out := filepath.Join(t.TempDir(), "out")
	got := (&fake{}).cli(t.Context(), t, env, "run", "--session", "one", "-c", "x", "--out", out, "--env", "A=\xff", "--timeout", "5")
	if got.status != 7 || got.stdout != "a\x00\xff\n42\n" || got.stderr != "e\n" {
		t.Errorf("got %+v, want 7 and the output of the program", got)
	}
	f.got.Stdout, f.got.Stderr, f.got.ID = nil, nil, "" // the id is the client's
	want := sandboxmcp.Request{
		Code: "x", Language: sandboxmcp.Node, Env: map[string]string{"A": "\xff"}, Limits: sandboxmcp.Limits{TimeoutSeconds: 5},
		Strict: true, Display: sandboxmcp.DisplayResults, Reader: sandboxmcp.ReaderTerminal, SessionID: "one",
	}
	if d := cmp.Diff(want, f.got); d != "" {
		t.Error(d)
	}
	found := map[string]string{}
	for _, name := range []string{"a.txt", "result-2.png", "result-2-shown.png", "result-2.svg"} {
		data, _ := os.ReadFile(filepath.Join(out, name))
		found[name] = string(data)
	}
	if d := cmp.Diff(map[string]string{"a.txt": "a", "result-2.png": "p", "result-2-shown.png": "\x89PNG", "result-2.svg": "<svg/>"}, found); d != "" {
		t.Error(d)
	}
	got = (&fake{}).cli(t.Context(), t, env, "run", "--session", "one", "-c", "x")
	if !strings.Contains(got.stderr, "1 picture displayed") {
		t.Errorf("without --out: got %q, want the pictures told", got.stderr)
	}
	got = (&fake{}).cli(t.Context(), t, env, "run", "--session", "one", "-c", "x", "-l", "python", "--json")
	if doc := parsed[sandboxmcp.Result](t, got.stdout); doc.ExitCode != 7 || len(doc.Results) != 3 || f.got.Language != sandboxmcp.Python {
		t.Errorf("--json: got %+v as %s, want status 7 and three results in Python", got, f.got.Language)
	}
}

func TestRunInNewSession(t *testing.T) {
	f := having()
	f.res.Status = sandboxmcp.StatusCompleted
	env := servers(t, f)
	if got := (&fake{}).cli(t.Context(), t, env, "run", "--session", "new", "-c", "x"); got.status != 0 || f.got.SessionID != "new" || f.got.Language != sandboxmcp.Python {
		t.Errorf("got %+v and %+v, want 0 in the session new", got, f.got)
	}
	dead := &fake{}
	dead.dead = sandboxmcp.Errorf(sandboxmcp.CodeSessionExpired, "it was one")
	if got := dead.cli(t.Context(), t, env, "run", "--session", "old", "-c", "x"); got.status != exitOurs || !strings.Contains(got.stderr, "session_expired") {
		t.Errorf("expired: got %+v, want 125 and session_expired", got)
	}
	if got := (&fake{}).cli(t.Context(), t, servers(t), "run", "--session", "new", "--no-server", "-c", "x"); got.status != exitOurs || !strings.Contains(got.stderr, "backend_unavailable") {
		t.Errorf("without a server: got %+v, want 125 and backend_unavailable", got)
	}
	if got := (&fake{}).cli(t.Context(), t, servers(t, having("x"), having("x")), "run", "--session", "x", "-c", "x"); got.status != exitOurs || !strings.Contains(got.stderr, "invalid_argument") {
		t.Errorf("two owners: got %+v, want 125 and invalid_argument", got)
	}
}

func TestRunInBackground(t *testing.T) {
	f := having("one")
	f.res = sandboxmcp.Result{RequestID: "r", Status: sandboxmcp.StatusRunning}
	env := servers(t, f)
	if got := (&fake{}).cli(t.Context(), t, env, "run", "--background", "-c", "x"); got.status != 0 || got.stdout != "r\n" || f.got.SessionID != "" || f.who != (sandboxmcp.Caller{Namespace: "default", Actor: "cli"}) {
		t.Errorf("got %+v, want 0 and the id alone", got)
	}
	got := (&fake{}).cli(t.Context(), t, env, "run", "--background", "--session", "one", "-c", "x", "--json")
	if doc := parsed[sandboxmcp.Result](t, got.stdout); doc.Status != sandboxmcp.StatusRunning || f.got.SessionID != "one" {
		t.Errorf("in a session: got %+v, want it running in session one", got)
	}
}

func TestRunElsewhereCancelled(t *testing.T) {
	f := having("one")
	f.wait = true
	env := servers(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	f.stdout = "x"
	var errs bytes.Buffer
	a := (&fake{}).call(append(env, "HOME="+t.TempDir()), writes(func() { cancel() }), &errs)
	if got := a.main(ctx, []string{"sandboxmcp", "run", "--session", "one", "-c", "x"}); got != exitCancelled {
		t.Errorf("interrupted: got %d and %q, want 130", got, errs.String())
	}
	a = (&fake{}).call(append(env, "HOME="+t.TempDir()), broken{}, &errs)
	if got := a.main(t.Context(), []string{"sandboxmcp", "run", "--session", "one", "-c", "x"}); got != exitBrokenPipe {
		t.Errorf("nobody reads: got %d and %q, want 141", got, errs.String())
	}
}

type writes func()

func (w writes) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

// TestFive: as mcp-code-sandbox the program takes only its own flags, and of the
// settings only its own.
func TestFive(t *testing.T) {
	f := &fake{}
	var out, errs bytes.Buffer
	state := t.TempDir()
	t.Chdir(t.TempDir())
	a := f.call([]string{"SANDBOXMCP_STATE_DIR=" + state, "SANDBOXMCP_TIMEOUT=not a number", "SANDBOXMCP_NAMESPACE=team", "sandbox_max_sessions=3", "PATH=/p"}, &out, &errs)
	if got := a.main(t.Context(), []string{"/x/mcp-code-sandbox"}); got != 0 {
		t.Errorf("got %d and %q, want 0", got, errs.String())
	}
	cfg := f.opened.Config
	if cfg.StateDir != state || cfg.Namespace != "default" || cfg.Tools.MaxSessions != 3 || f.opened.Actor != "mcp" || !slices.Contains(f.opened.Env, "PATH=/p") {
		t.Errorf("opened: got %+v, want the settings of five tools", f.opened)
	}
	if log, err := os.ReadFile("logs/sandbox.log"); err != nil || !strings.Contains(string(log), "serving") || errs.Len() > 0 {
		t.Errorf("log: got %q %v, and %q on stderr, want a log in the file and nothing on stderr", log, err, errs.String())
	}
	// Where there can be no such file, the server is there all the same.
	if err := os.RemoveAll("logs"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("logs", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a = f.call([]string{"SANDBOXMCP_STATE_DIR=" + state}, &out, &errs)
	if got := a.main(t.Context(), []string{"mcp-code-sandbox"}); got != 0 || !strings.Contains(errs.String(), "the log goes to stderr") {
		t.Errorf("without a log file: got %d and %q, want 0 and that it is told", got, errs.String())
	}
	errs.Reset()
	a = f.call(nil, &out, &errs)
	for _, c := range []struct {
		words  string
		status int
		stdout []string
	}{
		{"--help", 0, []string{"mcp-code-sandbox", "--transport", "--port"}},
		{"--version", 0, []string{app.Version()}},
		{"--frobnicate", exitUsage, nil},
		{"--port 80800", exitUsage, nil},
		{"--transport pigeon", exitUsage, nil},
	} {
		var out bytes.Buffer
		a := (&fake{}).call([]string{"HOME=" + t.TempDir()}, &out, io.Discard)
		got := a.main(t.Context(), append([]string{"mcp-code-sandbox"}, strings.Fields(c.words)...))
		for _, word := range c.stdout {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%s: got %q, want %q in it", c.words, out.String(), word)
			}
		}
		if got != c.status || c.stdout == nil && out.Len() > 0 {
			t.Errorf("%s: got %d and %q, want %d", c.words, got, out.String(), c.status)
		}
	}
	if got := a.main(t.Context(), []string{"mcp-code-sandbox", "run"}); got != exitUsage {
		t.Errorf("with an argument: got %d, want 2", got)
	}
	a = f.call([]string{"HOME=" + state, "SANDBOX_MAX_SESSIONS=many"}, &out, &errs)
	if got := a.main(t.Context(), []string{"mcp-code-sandbox"}); got != exitUsage || !strings.Contains(errs.String(), "SANDBOX_MAX_SESSIONS") {
		t.Errorf("with a setting that is none: got %d and %q, want 2 and the setting named", got, errs.String())
	}
}

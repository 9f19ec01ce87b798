package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// fake is an engine that answers what it was told to.
type fake struct {
	res    sandboxmcp.Result
	err    error
	stdout string
	stderr string
	wait   bool // until the context ends
	got    sandboxmcp.Request
	who    sandboxmcp.Caller // the caller of it
	opened app.Options
	closed bool
	idle   bool // it counts nothing

	unused
	fakeSessions
	fakeGuard
	fakeEgress
	fakeRecord
}

// unused are the verbs that no test calls; one that is called panics.
type unused struct{ sandboxmcp.Service }

func (f *fake) Execute(ctx context.Context, c sandboxmcp.Caller, r sandboxmcp.Request) (sandboxmcp.Result, error) {
	f.got, f.who = r, c
	if r.Stdout != nil {
		_, _ = io.WriteString(r.Stdout, f.stdout)
		_, _ = io.WriteString(r.Stderr, f.stderr)
	}
	if f.wait {
		<-ctx.Done()
	}
	return f.res, f.err
}

func (f *fake) Start(_ context.Context, c sandboxmcp.Caller, r sandboxmcp.Request) (sandboxmcp.Result, error) {
	f.got, f.who = r, c
	return f.res, f.err
}

func (*fake) Peers(context.Context) ([]string, error) { return nil, nil }

func (*fake) Answers(context.Context) error { return nil }

func (f *fake) Lookup(context.Context, sandboxmcp.Caller, sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	return f.res, f.err
}

func (f *fake) Cancel(_ context.Context, _ sandboxmcp.Caller, id sandboxmcp.RequestID) error {
	if id == "known" {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no")
}

// Jobs lists nothing.
func (f *fake) Jobs(context.Context, sandboxmcp.Caller) ([]sandboxmcp.Job, error) {
	return []sandboxmcp.Job{}, nil
}

func (f *fake) Output(context.Context, sandboxmcp.Caller, sandboxmcp.RequestID, string) ([]byte, error) {
	return nil, f.err
}

func (f *fake) ArtifactContent(_ context.Context, _ sandboxmcp.Caller, _ sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error) {
	return sandboxmcp.Artifact{Name: path, ContentB64: []byte("fetched " + path)}, nil
}

func (f *fake) Runtimes(context.Context) (sandboxmcp.Runtimes, error) {
	return sandboxmcp.Runtimes{}, nil
}

func (f *fake) Stats(context.Context) (sandboxmcp.Stats, error) {
	if f.idle {
		return sandboxmcp.Stats{}, nil
	}
	return sandboxmcp.Stats{
		Queue:      sandboxmcp.QueueStats{MaxConcurrent: 4, Active: 1, TotalProcessed: 5},
		Executions: map[sandboxmcp.Status]int64{sandboxmcp.StatusCompleted: 5},
		LatencyMS:  sandboxmcp.Latency{P50: 2, P99: 3},
		Pool:       map[string]int{"ready": 1},
	}, nil
}

func (f *fake) Packages(context.Context) ([]string, error) { return nil, f.err }

func (f *fake) Namespace() sandboxmcp.Namespace { return sandboxmcp.DefaultNamespace }

func (f *fake) Close() error {
	f.closed = true
	return nil
}

type outcome struct {
	status         int
	stdout, stderr string
}

// cli calls the command line with a fake engine.
func (f *fake) cli(ctx context.Context, t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	status := f.call(append([]string{"HOME=" + t.TempDir()}, env...), &out, &errs).main(ctx, append([]string{"sandboxmcp"}, args...))
	return outcome{status, out.String(), errs.String()}
}

func (f *fake) call(env []string, out, errs io.Writer) *call {
	return &call{App: &app.App{
		Env: env, Stdin: strings.NewReader("print(2)\n"), Stdout: out, Stderr: errs,
		Open:     func(_ context.Context, o app.Options) (app.Engine, error) { f.opened = o; return f, nil },
		Diagnose: func(context.Context, app.Options) []sandboxmcp.Check { return nil },
		Expired:  f.expired, Spawn: f.spawn,
	}}
}

func TestRunStatus(t *testing.T) {
	for _, c := range []struct {
		status sandboxmcp.Status
		code   int
		want   int
	}{
		{sandboxmcp.StatusCompleted, 0, 0},
		{sandboxmcp.StatusFailed, 3, 3},
		{sandboxmcp.StatusFailed, 124, 124},
		{sandboxmcp.StatusFailed, 255, 255},
		{sandboxmcp.StatusSignalled, 143, 143},
		{sandboxmcp.StatusTimedOut, -1, 124},
		{sandboxmcp.StatusOutOfMemory, 137, 137},
		{sandboxmcp.StatusOutputLimit, -1, 153},
		{sandboxmcp.StatusCancelled, -1, 130},
		{sandboxmcp.StatusRejected, 1, 1},
	} {
		f := &fake{res: sandboxmcp.Result{Status: c.status, ExitCode: c.code}, stdout: "a\x00\xff\n", stderr: "e\n"}
		got := f.cli(t.Context(), t, nil, "run", "-c", "x")
		if got.status != c.want || got.stdout != "a\x00\xff\n" || !strings.HasPrefix(got.stderr, "e\n") {
			t.Errorf("%s %d: got %+v, want %d and the program's bytes", c.status, c.code, got, c.want)
		}
		if !f.closed {
			t.Errorf("%s: got an open engine, want it closed", c.status)
		}
	}
}

func TestRunRequest(t *testing.T) {
	dir := t.TempDir()
	script, in := filepath.Join(dir, "a.mjs"), filepath.Join(dir, "in")
	for _, p := range []string{script, in} {
		if err := os.WriteFile(p, []byte("text of "+filepath.Base(p)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &fake{}
	f.cli(t.Context(), t, []string{"SANDBOXMCP_NAMESPACE=team"}, "run", script, "--timeout", "1.5", "--ram", "64", "--cpu", "0.5", "--processes", "3", "--max-output", "10",
		"--env", "A=b=c", "--env", "D=", "--stdin", in, "--backend", "process", "--json")
	want := sandboxmcp.Request{
		Code: "text of a.mjs", Language: sandboxmcp.Node, FileName: "a.mjs", Stdin: []byte("text of in"),
		Env: map[string]string{"A": "b=c", "D": ""}, Strict: true, Backend: "process", Reader: sandboxmcp.ReaderTerminal,
		Limits: sandboxmcp.Limits{MaxRAMMB: 64, MaxCPUCores: 0.5, TimeoutSeconds: 1.5, MaxProcesses: 3, MaxOutputBytes: 10},
	}
	if d := cmp.Diff(want, f.got); d != "" {
		t.Error(d)
	}
	if want := (sandboxmcp.Caller{Namespace: "team", Actor: "cli"}); f.who != want {
		t.Errorf("caller: got %+v, want %+v", f.who, want)
	}
	f.cli(t.Context(), t, nil, "run", "-", "-l", "shell")
	if f.got.Code != "print(2)\n" || f.got.Language != sandboxmcp.Shell || f.got.FileName != "" {
		t.Errorf("from stdin: got %+v, want a shell program without a name", f.got)
	}
	if f.opened.Actor != "cli" || len(f.opened.Env) == 0 || f.opened.Version == "" {
		t.Errorf("options: got %+v, want actor cli, an environment and a version", f.opened)
	}
}

// TestTheNoteIsOneLine: a person reads after the output what its end means, and nothing after one
// that is plain.
func TestTheNoteIsOneLine(t *testing.T) {
	for note, want := range map[string]string{
		"Stopped at 64 MiB.\nPass --ram.": "sandboxmcp: Stopped at 64 MiB. Pass --ram.\n", "": "",
	} {
		f := &fake{res: sandboxmcp.Result{Status: sandboxmcp.StatusOutOfMemory, Note: note}}
		if got := f.cli(t.Context(), t, nil, "run", "-c", "x"); got.stderr != want {
			t.Errorf("%q: got %q on stderr, want %q", note, got.stderr, want)
		}
	}
}

func TestFileName(t *testing.T) {
	for script, want := range map[string]string{
		"/x/a.py": "a.py", "bang": "bang", "a b.py": "", "-x.py": "", ".hidden": "", "ü.py": "", "": "", "-": "", "..": "", strings.Repeat("x", 200): "",
	} {
		if got := fileName(script); got != want {
			t.Errorf("%q: got %q, want %q", script, got, want)
		}
	}
}

func TestRunFailure(t *testing.T) {
	f := &fake{err: sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "no wall\nhere \x1b[31m").WithCause(os.ErrPermission)}
	got := f.cli(t.Context(), t, nil, "run", "--json", "-c", "x")
	if got.status != exitOurs {
		t.Errorf("got %d, want 125", got.status)
	}
	if strings.Count(got.stderr, "\n") != 1 || strings.Contains(got.stderr, "\x1b") || !strings.Contains(got.stderr, "isolation_unavailable") || !strings.Contains(got.stderr, "permission denied") {
		t.Errorf("stderr: got %q, want one clean line with code and cause", got.stderr)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &body); err != nil {
		t.Fatal(err)
	}
	if body["error"] != "isolation_unavailable" || body["hint"] == "" || strings.Contains(got.stdout, "permission") {
		t.Errorf("body: got %v, want isolation_unavailable with a hint and without the cause", body)
	}
}

func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &fake{wait: true, res: sandboxmcp.Result{Status: sandboxmcp.StatusCancelled, ExitCode: -1}}
	if got := f.cli(ctx, t, nil, "run", "-c", "x"); got.status != 130 {
		t.Errorf("while it ran: got %d, want 130", got.status)
	}
	f = &fake{err: sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "before")}
	if got := f.cli(t.Context(), t, nil, "run", "-c", "x"); got.status != 130 {
		t.Errorf("before it ran: got %d, want 130", got.status)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestRunWithoutReader(t *testing.T) {
	f := &fake{wait: true, stdout: "x", res: sandboxmcp.Result{Status: sandboxmcp.StatusCancelled}}
	var errs bytes.Buffer
	a := f.call([]string{"HOME=" + t.TempDir()}, broken{}, &errs)
	if got := a.main(t.Context(), []string{"sandboxmcp", "run", "-c", "x"}); got != exitBrokenPipe {
		t.Errorf("got %d, want %d", got, exitBrokenPipe)
	}
}

// full is a stream on a full disk.
type full struct{}

func (full) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return 0, syscall.ENOSPC
}

// TestOutputThatIsNotWritten: a command whose output is lost does not end with success.
func TestOutputThatIsNotWritten(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      *fake
		args   []string
		status int
	}{
		{"the program's stdout", &fake{stdout: "x", res: sandboxmcp.Result{Status: sandboxmcp.StatusCompleted}}, []string{"run", "-c", "x"}, exitOurs},
		{"nothing to write", &fake{res: sandboxmcp.Result{Status: sandboxmcp.StatusCompleted}}, []string{"run", "-c", "x"}, 0},
		{"the program has failed", &fake{stdout: "x", res: sandboxmcp.Result{Status: sandboxmcp.StatusFailed, ExitCode: 3}}, []string{"run", "-c", "x"}, 3},
		{"a result", &fake{res: sandboxmcp.Result{Status: sandboxmcp.StatusCompleted}}, []string{"run", "--json", "-c", "x"}, exitOurs},
		{"help", &fake{}, []string{"run", "--help"}, exitOurs},
	} {
		var errs bytes.Buffer
		a := c.f.call([]string{"HOME=" + t.TempDir()}, full{}, &errs)
		got := a.main(t.Context(), append([]string{"sandboxmcp"}, c.args...))
		if got != c.status || (c.status != 0) != strings.Contains(errs.String(), "stdout is not complete: no space left") {
			t.Errorf("%s: got %d, %q, want %d", c.name, got, errs.String(), c.status)
		}
	}
}

func TestOut(t *testing.T) {
	work := t.TempDir()
	out := filepath.Join(work, "out")
	if err := os.MkdirAll(out, 0o700); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(work, "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link.txt": kept, "up": work} {
		if err := os.Symlink(to, filepath.Join(out, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := &fake{res: sandboxmcp.Result{Status: sandboxmcp.StatusCompleted, Artifacts: []sandboxmcp.Artifact{
		{Name: "../escape", ContentB64: []byte("x")},
		{Name: "/abs", ContentB64: []byte("x")},
		{Name: "up/through", ContentB64: []byte("x")},
		{Name: "link.txt", ContentB64: []byte("new"), SizeBytes: 3},
		{Name: "sub/deep/a.txt", ContentB64: []byte("a"), SizeBytes: 1},
		{Name: "large", SizeBytes: 99},
		{Name: "empty"},
	}, Metadata: map[string]any{"skipped": []sandboxmcp.SkippedFile{{Name: "evil\x1b", Reason: "symbolic link"}}}}}
	got := f.cli(t.Context(), t, nil, "run", "--out", out, "-c", "x")
	if got.status != exitOurs || strings.Count(got.stderr, "is not written")+strings.Count(got.stderr, "cannot be written") != 3 {
		t.Errorf("got %d and %q, want 125 and three files refused", got.status, got.stderr)
	}
	if !strings.Contains(got.stderr, "symbolic link") || strings.Contains(got.stderr, "\x1b") {
		t.Errorf("skipped: got %q, want the reason without escapes", got.stderr)
	}
	found := map[string]string{}
	for _, name := range []string{"link.txt", "sub/deep/a.txt", "large", "empty"} {
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Error(err)
		}
		found[name] = string(data)
	}
	if d := cmp.Diff(map[string]string{"link.txt": "new", "sub/deep/a.txt": "a", "large": "fetched large", "empty": ""}, found); d != "" {
		t.Error(d)
	}
	if data, _ := os.ReadFile(kept); string(data) != "kept" {
		t.Errorf("the file behind the link: got %q, want it untouched", data)
	}
	above, err := os.ReadDir(work)
	if err != nil || len(above) != 2 {
		t.Errorf("the directory above: got %v %v, want out and kept", above, err)
	}
}

func TestArtifactsDocument(t *testing.T) {
	f := &fake{res: sandboxmcp.Result{RequestID: "r", Status: sandboxmcp.StatusCompleted, Artifacts: []sandboxmcp.Artifact{{Name: "a.txt", SHA256: "s", ContentB64: []byte("a")}}}}
	got := f.cli(t.Context(), t, nil, "artifacts", "r")
	var doc struct {
		RequestID string `json:"request_id"`
		Status    string
		Manifest  map[string]string
		Artifacts []struct {
			Content string `json:"content_b64"`
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil {
		t.Fatalf("got %v in %q, want JSON", err, got.stdout)
	}
	if doc.RequestID != "r" || doc.Manifest["a.txt"] != "s" || doc.Artifacts[0].Content != "YQ==" {
		t.Errorf("got %+v, want request r with the file and its hash", doc)
	}
}

func TestLive(t *testing.T) {
	state := t.TempDir()
	for range 2 {
		s, err := api.Listen(t.Context(), api.Config{StateDir: state, Service: &fake{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
	}
	env := []string{"SANDBOXMCP_STATE_DIR=" + state}
	f := &fake{}
	var q sandboxmcp.QueueStats
	got := f.cli(t.Context(), t, env, "queue", "status")
	if err := json.Unmarshal([]byte(got.stdout), &q); err != nil {
		t.Fatalf("got %v in %+v, want JSON", err, got)
	}
	if want := (sandboxmcp.QueueStats{MaxConcurrent: 8, Active: 2, TotalProcessed: 10}); q != want {
		t.Errorf("queue: got %+v, want %+v", q, want)
	}
	var s app.Stats
	got = f.cli(t.Context(), t, env, "stats")
	if err := json.Unmarshal([]byte(got.stdout), &s); err != nil {
		t.Fatalf("got %v in %+v, want JSON", err, got)
	}
	if s.Servers != 2 || s.Executions[sandboxmcp.StatusCompleted] != 10 || s.LatencyMS.P99 != 3 || s.Pool["ready"] != 2 {
		t.Errorf("stats: got %+v, want the sum of two servers", s)
	}
	if got := f.cli(t.Context(), t, env, "cancel", "known"); got.status != 0 || got.stdout != "cancelled known\n" {
		t.Errorf("cancel: got %+v, want 0 and cancelled known", got)
	}
	if got := f.cli(t.Context(), t, env, "cancel", "other"); got.status != 5 || !strings.Contains(got.stderr, "request_not_found") {
		t.Errorf("cancel of an unknown one: got %+v, want 5 and request_not_found", got)
	}
}

func TestDemo(t *testing.T) {
	f := &fake{stdout: "", res: sandboxmcp.Result{
		Status: sandboxmcp.StatusCompleted, Success: true, Stdout: "hello \x1b[31m\n",
		Isolation: &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2, Walls: []string{"seccomp"}},
	}}
	got := f.cli(t.Context(), t, nil, "demo")
	if got.status != 1 || !strings.Contains(got.stdout, "receipt missing") {
		t.Errorf("without receipts: got %+v, want 1", got)
	}
	if !strings.Contains(got.stdout, "tier L2") || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("got %q, want the tier without escapes", got.stdout)
	}
	f = &fake{err: sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "no interpreter")}
	if got := f.cli(t.Context(), t, nil, "demo"); got.status != 9 {
		t.Errorf("without interpreters: got %d, want 9", got.status)
	}
}

func TestServe(t *testing.T) {
	f := &fake{}
	var out, errs bytes.Buffer
	state := t.TempDir()
	a := f.call([]string{"SANDBOXMCP_STATE_DIR=" + state, "SANDBOXMCP_API_PORT=1234"}, &out, &errs)
	a.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	if got := a.main(t.Context(), []string{"sandboxmcp", "serve"}); got != 0 {
		t.Errorf("got %d and %q, want 0", got, errs.String())
	}
	var answer struct{ ID int }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer.ID != 1 {
		t.Errorf("stdout: got %q, want one answer", out.String())
	}
	if !f.closed || f.opened.Actor != "mcp" {
		t.Errorf("engine: got closed %v as %q, want true as mcp", f.closed, f.opened.Actor)
	}
	left, err := os.ReadDir(filepath.Join(state, "run"))
	if err != nil || len(left) != 0 {
		t.Errorf("sockets left: got %v %v, want none", left, err)
	}
}

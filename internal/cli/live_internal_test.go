package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// servers opens a control socket for each engine in one state directory and
// returns the environment that names it.
func servers(t *testing.T, engines ...*fake) []string {
	t.Helper()
	state := t.TempDir()
	for _, f := range engines {
		f.listen(t, state, false)
	}
	return []string{"SANDBOXMCP_STATE_DIR=" + state}
}

func unknownRequest() error { return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no") }

func TestArtifactsOfServer(t *testing.T) {
	running := sandboxmcp.Result{RequestID: "r", Language: sandboxmcp.Python, Status: sandboxmcp.StatusRunning, Artifacts: []sandboxmcp.Artifact{}}
	ended := running
	ended.Status = sandboxmcp.StatusCompleted
	ended.Artifacts = []sandboxmcp.Artifact{{Name: "a.txt", SizeBytes: 2, ContentB64: []byte("hi")}}
	ended.Metadata = map[string]any{"skipped": []sandboxmcp.SkippedFile{{Name: "evil", Reason: "symbolic link"}}}
	without := ended
	without.Artifacts = []sandboxmcp.Artifact{{Name: "a.txt", SizeBytes: 2}}
	failed := sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "it came to nothing")
	for _, c := range []struct {
		name    string
		servers []*fake
		kept    *fake // what the state directory knows
		status  int
		want    sandboxmcp.Status
		stderr  string
		file    string // a.txt below --out
	}{
		{"it runs", []*fake{{err: unknownRequest()}, {res: running}}, &fake{err: unknownRequest()}, 0, sandboxmcp.StatusRunning, "", ""},
		{"it has ended", []*fake{{res: ended}}, &fake{err: unknownRequest()}, 0, sandboxmcp.StatusCompleted, `file "evil" was not kept: symbolic link`, "hi"},
		{"too much for the socket", []*fake{{res: without}}, &fake{res: ended}, 0, sandboxmcp.StatusCompleted, "evil", "hi"},
		{"it failed", []*fake{{err: failed}}, &fake{err: unknownRequest()}, 1, "", "it came to nothing", ""},
		{"a fault of the server", []*fake{{err: errors.New("x")}}, &fake{res: ended}, 0, sandboxmcp.StatusCompleted, "evil", "hi"},
		{"nobody knows", []*fake{{err: unknownRequest()}}, &fake{err: unknownRequest()}, 5, "", "request_not_found", ""},
		{"no server", nil, &fake{res: ended}, 0, sandboxmcp.StatusCompleted, "evil", "hi"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		got := c.kept.cli(t.Context(), t, servers(t, c.servers...), "artifacts", "r", "--out", out)
		if got.status != c.status || !strings.Contains(got.stderr, c.stderr) {
			t.Errorf("%s: got %+v, want %d and %q", c.name, got, c.status, c.stderr)
		}
		var doc struct{ Status sandboxmcp.Status }
		if err := json.Unmarshal([]byte(got.stdout), &doc); c.want != "" && (err != nil || doc.Status != c.want) {
			t.Errorf("%s: got %s and %v, want %s", c.name, doc.Status, err, c.want)
		}
		if data, _ := os.ReadFile(filepath.Join(out, "a.txt")); string(data) != c.file {
			t.Errorf("%s: the file: got %q, want %q", c.name, data, c.file)
		}
	}
}

// TestSkippedFiles: they are named whatever JSON has made of them on the way.
func TestSkippedFiles(t *testing.T) {
	want := []sandboxmcp.SkippedFile{{Name: "evil", Reason: "symbolic link"}}
	for name, v := range map[string]any{
		"as the engine made it": want,
		"as it was read":        []any{map[string]any{"name": "evil", "reason": "symbolic link"}},
	} {
		if d := cmp.Diff(want, skippedFiles(sandboxmcp.Result{Metadata: map[string]any{"skipped": v}})); d != "" {
			t.Errorf("%s (-want +got): %s", name, d)
		}
	}
	for _, v := range []any{nil, 7, "x", []any{"x"}, func() {}} {
		if got := skippedFiles(sandboxmcp.Result{Metadata: map[string]any{"skipped": v}}); len(got) != 0 {
			t.Errorf("%v: got %v, want none", v, got)
		}
	}
}

func TestStatsHaveEveryStatus(t *testing.T) {
	for name, env := range map[string][]string{
		"without a server": {"SANDBOXMCP_STATE_DIR=" + filepath.Join(t.TempDir(), "none")},
		"with one":         servers(t, &fake{}),
	} {
		got := (&fake{}).cli(t.Context(), t, env, "stats")
		var doc struct{ Executions map[sandboxmcp.Status]int64 }
		if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil {
			t.Fatalf("%s: got %v in %+v, want JSON", name, err, got)
		}
		for _, s := range sandboxmcp.Statuses() {
			if _, ok := doc.Executions[s]; !ok {
				t.Errorf("%s: got %[3]v, want %[2]s in it", name, s, doc.Executions)
			}
		}
	}
}

func TestCauseOnce(t *testing.T) {
	for _, c := range []struct{ text, cause, want string }{
		{"no: disk is full", "disk is full", "no: disk is full"},
		{"no", "disk is full", "no: disk is full"},
		{"no: permission denied", "mkdir /x: permission denied", "no: permission denied: mkdir /x"},
		{"mkdir /x: permission denied", "mkdir /x: permission denied", "mkdir /x: permission denied"},
		{"no: it is read-only", "open /x: read-only file system", "no: it is read-only: open /x: read-only file system"},
	} {
		if got := withCause(c.text, c.cause); got != c.want {
			t.Errorf("%q because of %q: got %q, want %q", c.text, c.cause, got, c.want)
		}
	}
	f := &fake{err: sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "it could not be started: no memory").WithCause(errors.New("no memory"))}
	if got := f.cli(t.Context(), t, nil, "run", "-c", "x"); strings.Count(got.stderr, "no memory") != 1 {
		t.Errorf("got %q, want the cause once", got.stderr)
	}
}

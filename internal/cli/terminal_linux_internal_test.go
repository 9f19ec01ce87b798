package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/terminal"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// onTerminal runs a command with stdout and stderr on a terminal of 80 columns, and returns
// what was written to it.
func onTerminal(t *testing.T, f *fake, env []string, args ...string) string {
	t.Helper()
	screen := testkit.OpenTerminal(t, 80)
	f.call(append(env, "HOME="+t.TempDir(), "TERM=xterm"), screen.File, screen.File).main(t.Context(), append([]string{"sandboxmcp"}, args...))
	return screen.Text()
}

const evil = "a\x1b]52;c;ZXZpbA==\ab\x1b[5Ac\x1b[31md\n"

func TestOutputOfProgramsIsFilteredOnATerminal(t *testing.T) {
	const want = "abc\x1b[31md\n\x1b[m"
	f := &fake{stdout: evil, res: sandboxmcp.Result{Status: sandboxmcp.StatusCompleted, Success: true}}
	if got := onTerminal(t, f, nil, "run", "-c", "1"); got != want {
		t.Errorf("run: got %q, want %q", got, want)
	}
	if got := onTerminal(t, f, nil, "run", "--raw", "-c", "1"); got != evil {
		t.Errorf("run --raw: got %q, want %q", got, evil)
	}
	f = &fake{stderr: evil, res: sandboxmcp.Result{Status: sandboxmcp.StatusCompleted, Success: true}}
	if got := onTerminal(t, f, nil, "run", "-c", "1"); got != want {
		t.Errorf("stderr of run: got %q, want %q", got, want)
	}
	if got := f.cli(t.Context(), t, nil, "run", "-c", "1"); got.stderr != evil {
		t.Errorf("off a terminal: got %q, want %q", got.stderr, evil)
	}

	shown := sandboxmcp.Result{Status: sandboxmcp.StatusCompleted, Success: true, Results: []sandboxmcp.RichResult{{"is_main_result": true, "text/plain": evil}}}
	owner := &fake{res: shown, fakeSessions: fakeSessions{have: []sandboxmcp.Session{{ID: "one", Language: sandboxmcp.Python}}}}
	if got := onTerminal(t, &fake{}, servers(t, owner), "run", "--session", "one", "-c", "1"); got != want {
		t.Errorf("value of a cell: got %q, want %q", got, want)
	}
}

func TestArtifactsShowsTheOutputFiltered(t *testing.T) {
	res := sandboxmcp.Result{
		RequestID: "r", Language: sandboxmcp.Python, Status: sandboxmcp.StatusCompleted, Stdout: evil, Stderr: "oh\r\n",
		Artifacts: []sandboxmcp.Artifact{{Name: "kit\x1b[2J.txt", SHA256: strings.Repeat("0", 64)}},
	}
	for _, status := range []sandboxmcp.Status{sandboxmcp.StatusCompleted, sandboxmcp.StatusRunning} {
		res.Status = status
		got := onTerminal(t, &fake{res: res}, []string{"NO_COLOR=1"}, "artifacts", "r")
		want := "request r: python, " + string(status)
		if !strings.Contains(got, want) || !strings.Contains(got, "── stdout\nabc\x1b[31md\n\x1b[m── stderr\noh\n") {
			t.Errorf("got %q, want %q, stdout and stderr", got, want)
		}
		if strings.ContainsAny(got, "\a\r") || strings.Contains(got, "\x1b[2J") || strings.Contains(got, "\x1b[5A") {
			t.Errorf("got %q, want only text and colors", got)
		}
	}
}

func TestRunSaysWhichFilesWereKept(t *testing.T) {
	res := sandboxmcp.Result{RequestID: "r", Status: sandboxmcp.StatusCompleted, Success: true}
	for _, name := range []string{"a.txt", "b\x1b[2J", "c", "d", "e", "f", "g"} {
		res.Artifacts = append(res.Artifacts, sandboxmcp.Artifact{Name: name})
	}
	const want = "\x1b[msandboxmcp: kept a.txt, b\ufffd[2J, c, d, e and 2 more files; get them with `sandboxmcp artifacts r --out DIR`\n"
	if got := onTerminal(t, &fake{res: res}, nil, "run", "-c", "1"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (&fake{res: res}).cli(t.Context(), t, nil, "run", "-c", "1"); got.stderr != "" {
		t.Errorf("off a terminal: got %q, want nothing", got.stderr)
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	for _, words := range []string{"config", "limits", "stats", "runtimes"} {
		got := onTerminal(t, &fake{}, nil, words)
		if len(got) < 20 {
			t.Errorf("%s: got %q, want a table", words, got)
		}
		for line := range strings.Lines(got) {
			if n := terminal.Columns(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: got a line of %d columns, want at most 80: %q", words, n, line)
			}
		}
	}
	var out, errs bytes.Buffer
	a := (&fake{}).call([]string{"HOME=" + t.TempDir()}, &out, &errs)
	a.terminal = true
	a.main(t.Context(), []string{"sandboxmcp", "config"})
	if !strings.Contains(out.String(), "docker ps,docker logs,docker images") {
		t.Errorf("without a width: got %q, want nothing wrapped", out.String())
	}
}

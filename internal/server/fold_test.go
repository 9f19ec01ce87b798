package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestEqualLinesAreShownOnce: a fork bomb fills stderr with one line.
func TestEqualLinesAreShownOnce(t *testing.T) {
	const line = "main.sh: fork: retry: Resource temporarily unavailable\n"
	r := result(sandboxmcp.Request{}, "begin\n"+strings.Repeat("\n", 5)+"end\n")
	r.Stderr = "first\n" + strings.Repeat(line, 1041) + "a\na\nlast"
	body, text, _ := smallAnswer(t, newFake(), r)
	if want := "first\n" + line + "[… the same line 1040 more times]\na\na\nlast"; body["stderr"] != want {
		t.Errorf("stderr: got %.300q, want %q", body["stderr"], want)
	}
	if body["stdout"] != r.Stdout || body["stderr_uri"] != "run://"+runID+"/stderr" || body["stdout_uri"] != nil {
		t.Errorf("got %.400s, want stdout as it is, and where the whole of stderr is", text)
	}

	r.Stderr = strings.Repeat(line, 20) // fits
	if body, _, _ = smallAnswer(t, newFake(), r); body["stderr"] != r.Stderr || body["stderr_uri"] != nil {
		t.Errorf("output that fits: got %.200q, want it as it is", body["stderr"])
	}

	r.Stdout, r.Stderr = strings.Repeat("0\n", 3000), strings.Repeat(line, 100) // stdout is data
	body, _, _ = smallAnswer(t, newFake(), r)
	if want := line + "[… the same line 99 more times]\n"; body["stdout"] != r.Stdout || body["stderr"] != want || body["stderr_uri"] != "run://"+runID+"/stderr" {
		t.Errorf("got stderr %.300q at %v, want %q", body["stderr"], body["stderr_uri"], want)
	}

	r.Stdout, r.Stderr = "", ""
	var b strings.Builder
	for i := range 4000 { // folded, it is still too long
		fmt.Fprintf(&b, "%d\n%s", i, strings.Repeat("zz\n", 20))
	}
	r.Stdout = b.String()
	body, text, _ = smallAnswer(t, newFake(), r)
	stdout, _ := body["stdout"].(string)
	if !strings.HasPrefix(stdout, "0\nzz\n[… the same line 19 more times]\n1\n") || !strings.HasSuffix(stdout, "3999\nzz\n[… the same line 19 more times]\n") || len(text) > 18_000 {
		t.Errorf("got %d characters, %.100q, want head and tail of folded lines", len(text), stdout)
	}

	f := newFake()
	res := answers(t, f, r)
	if got, _ := structured(res)["stdout"].(string); strings.Contains(got, "the same line") {
		t.Error("an answer in full folds lines, want them as they are")
	}
}

// TestOutputThatHadToBeStopped: a run that was ended for its output costs about 2,000 characters.
func TestOutputThatHadToBeStopped(t *testing.T) {
	r := result(sandboxmcp.Request{}, "HEAD"+strings.Repeat("x", 999_990)+"\nTAIL\n")
	r.Stderr = strings.Repeat("y", 1_000_000)
	r.Status, r.Success, r.ExitCode = sandboxmcp.StatusOutputLimit, false, -1
	r.StdoutTruncated, r.StderrTruncated = true, true
	r.Note = "Stopped at 16,000,000 bytes of output. Write it to a file in /mnt/data and print a part."
	f := newFake()
	f.config.Small = true
	f.execute = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) { return r, nil }
	for _, tool := range []string{"execute_code", "sandbox_run_python"} {
		body := legacy(t, f).good(tool, map[string]any{"code": "x"})
		stdout, _ := body["stdout"].(string)
		stderr, _ := body["stderr"].(string)
		if n := len(stdout) + len(stderr); n > 2_000 || n < 1_000 || !strings.HasPrefix(stdout, "HEAD") || !strings.HasSuffix(stdout, "TAIL\n") {
			t.Errorf("%s: got %d characters %.50q, want at most 2,000, head and tail", tool, n, stdout)
		}
		if want := fmt.Sprintf("the first %d bytes at run://%s/stdout …]", len(r.Stdout), runID); !strings.Contains(stdout, want) || strings.Contains(stdout, "whole at") {
			t.Errorf("%s: got %q, want %q, because the rest is not kept", tool, stdout, want)
		}
		if body["note"] != r.Note {
			t.Errorf("%s: note: got %v, want %q alone", tool, body["note"], r.Note)
		}
	}
}

// TestWhereTheRestOfOutputIs: not every host lets its model read resources.
func TestWhereTheRestOfOutputIs(t *testing.T) {
	r := result(sandboxmcp.Request{}, "")
	for i := range 9000 {
		r.Stdout += fmt.Sprintln(i)
	}
	body, _, _ := smallAnswer(t, newFake(), r)
	if note, _ := body["note"].(string); !strings.Contains(note, "write it to a file in /mnt/data") {
		t.Errorf("note: got %q, want what helps without resources", note)
	}
	if stdout, _ := body["stdout"].(string); !strings.Contains(stdout, "whole at run://"+runID+"/stdout") {
		t.Error("stdout does not say where the whole is")
	}
}

func TestALongValueIsShownInPart(t *testing.T) {
	plain := func(text string) string {
		t.Helper()
		r := result(sandboxmcp.Request{}, "")
		r.Results = []sandboxmcp.RichResult{{"text/plain": text}}
		body, _, _ := smallAnswer(t, newFake(), r)
		list, _ := body["results"].([]any)
		shown, _ := list[0].(map[string]any)
		s, _ := shown["text/plain"].(string)
		return s
	}
	got := plain("HEAD" + strings.Repeat("r", 7_000) + "TAIL")
	if len(got) > 2_010 || !strings.HasPrefix(got, "HEAD") || !strings.HasSuffix(got, "TAIL") || !strings.Contains(got, "whole at run://"+runID+"/result …]") {
		t.Errorf("got %d characters %q, want at most 2,000, head and tail, and where the whole is", len(got), got)
	}
	figure := "Figure({\n    'data': [{'x': array([" + strings.Repeat("1, ", 1000) + "])},\n             {'x': 1},\n             {'y': 2}],\n    'layout': {'a': [{},\n             {}]}\n})"
	if got, want := plain(figure), "Figure with 3 traces, whole at run://"+runID+"/result"; got != want {
		t.Errorf("a plotly figure: got %.100q, want %q", got, want)
	}
	if small := "Figure({\n    'data': [{'x': 1}],\n    'layout': {}\n})"; plain(small) != small {
		t.Errorf("a figure that fits: got %q, want it as it is", plain(small))
	}
}

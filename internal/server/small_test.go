package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// smallAnswer returns the body of execute_code's small answer for r, its text, and its blocks.
func smallAnswer(t *testing.T, f *fake, r sandboxmcp.Result) (body map[string]any, text string, res map[string]any) {
	t.Helper()
	f.config.Small = true
	res = answers(t, f, r)
	sameText(t, "execute_code", res)
	text, _ = blocks(res, "text")[0]["text"].(string)
	return structured(res), text, res
}

func TestASmallAnswerHasWhatTheProgramSaid(t *testing.T) {
	r := result(sandboxmcp.Request{}, "42\n")
	r.Isolation = &sandboxmcp.Isolation{Tier: sandboxmcp.TierL3, Walls: []string{"seccomp"}}
	r.Receipt = &sandboxmcp.Receipt{}
	r.Metadata = map[string]any{}
	body, text, _ := smallAnswer(t, newFake(), r)
	want := []string{"duration_ms", "exit_code", "request_id", "status", "stderr", "stdout", "success"}
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(body))); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
	if got := len(text); got > 200 {
		t.Errorf("got %d characters, want at most 200", got)
	}

	r.Isolation.Weak = []string{"a", "b"}
	if body, _, _ := smallAnswer(t, newFake(), r); body["isolation"] != "L3, 2 weak" {
		t.Errorf("got isolation %v, want that two are weak", body["isolation"])
	}
}

func TestASmallAnswerOfARunThatGoesOn(t *testing.T) {
	r := result(sandboxmcp.Request{}, "begun\n")
	r.Status, r.Success, r.ExitCode, r.ElapsedSeconds, r.TimeoutSeconds = sandboxmcp.StatusRunning, false, -1, 1.26, 60
	body, _, _ := smallAnswer(t, newFake(), r)
	for field, want := range map[string]any{"success": nil, "exit_code": nil, "stdout": "begun\n", "elapsed_seconds": 1.3, "timeout_seconds": 60.0} {
		if got, ok := body[field]; !ok || got != want {
			t.Errorf("%s: got %v, want %v", field, got, want)
		}
	}
	if _, ok := body["duration_ms"]; ok {
		t.Error("duration_ms is there before the end")
	}
	r.ElapsedSeconds = 0.004 // the field is there from the beginning
	if body, _, _ = smallAnswer(t, newFake(), r); body["elapsed_seconds"] != 0.1 {
		t.Errorf("elapsed_seconds: got %v, want 0.1", body["elapsed_seconds"])
	}
}

// TestAFullAnswerOfARunThatGoesOn: it has neither succeeded nor failed. The fields keep their order.
func TestAFullAnswerOfARunThatGoesOn(t *testing.T) {
	res := legacy(t, newFake()).call("execute_code", map[string]any{"code": "x", "background": true})
	text, _ := blocks(res, "text")[0]["text"].(string)
	if want := `{"request_id":"` + runID + `","success":null,"exit_code":null,"stdout":""`; !strings.HasPrefix(text, want) {
		t.Errorf("got %.100s, want %s", text, want)
	}
}

func TestStreamsOfASmallAnswer(t *testing.T) {
	r := result(sandboxmcp.Request{}, "HEAD"+strings.Repeat("line\nrow\n", 11_000)+"TAIL\n")
	r.Stderr = "few words"
	body, text, _ := smallAnswer(t, newFake(), r)
	stdout, _ := body["stdout"].(string)
	head, rest, _ := strings.Cut(stdout, "\n[… ")
	_, tail, _ := strings.Cut(rest, " …]\n")
	if len(text) > 17_000 || body["stderr"] != "few words" || !strings.HasPrefix(head, "HEAD") || !strings.HasSuffix(tail, "TAIL\n") {
		t.Errorf("got %d characters, stderr %q, stdout %.20q … %q; want at most 17000, stderr as it is, head and tail", len(text), body["stderr"], head, tail[max(0, len(tail)-20):])
	}
	if ratio := float64(len(head)) / float64(len(tail)); ratio < 1.5 || ratio > 1.8 {
		t.Errorf("got %d bytes of head and %d of tail, want 10 to 6", len(head), len(tail))
	}
}

func TestFilesOfASmallAnswer(t *testing.T) {
	r := result(sandboxmcp.Request{}, "")
	for i := range 200 {
		r.Artifacts = append(r.Artifacts, artifact(fmt.Sprintf("f%03d.txt", i), []byte("x")))
	}
	r.Metadata = map[string]any{"skipped_total": 2800.0, "skipped": []sandboxmcp.SkippedFile{{Name: "…", Reason: "and 2800 more"}}}
	body, text, _ := smallAnswer(t, newFake(), r)
	files, _ := body["artifacts"].([]any)
	if more := body["more_artifacts"]; len(text) > 1500 || len(files) != 3 || more != 2997.0 {
		t.Errorf("3000 files: got %d characters, %d files and %v more; want at most 1500 and 3, and all counted", len(text), len(files), more)
	}
	if _, ok := body["more_artifacts_at_least"]; ok {
		t.Error("more_artifacts_at_least is there, but all are counted")
	}
	r.Metadata["skipped_partial"] = true
	body, _, _ = smallAnswer(t, newFake(), r)
	if d := cmp.Diff([]any{true, map[string]any{"not listed, at least": 2800.0}}, []any{body["more_artifacts_at_least"], body["skipped_reasons"]}); d != "" {
		t.Errorf("files that were not all counted (-want +got):\n%s", d)
	}

	// Rows for directories are told, and do not count as files.
	r.Metadata["skipped_total"], r.Metadata["skipped"] = 10, []sandboxmcp.SkippedFile{{Name: "a", Reason: "FIFO"}, {Name: "b/…", Reason: "rest"}, {Name: "c/", Reason: "rest"}, {Name: "d", Reason: "FIFO"}, {Name: "e", Reason: "FIFO"}, {Name: "f", Reason: "FIFO"}}
	body, _, _ = smallAnswer(t, newFake(), r)
	if d := cmp.Diff([]any{204.0, map[string]any{"FIFO": 4.0, "rest": 2.0, "not listed, at least": 6.0}}, []any{body["more_artifacts"], body["skipped_reasons"]}); d != "" {
		t.Errorf("files beside directories (-want +got):\n%s", d)
	}

	r.Artifacts = []sandboxmcp.Artifact{artifact("report.txt", []byte("a,b\n"))}
	for i := range 199 {
		r.Artifacts = append(r.Artifacts, artifact(fmt.Sprintf("pkgs/f%03d.txt", i), []byte("xx")))
	}
	r.Metadata = nil
	body, _, _ = smallAnswer(t, newFake(), r)
	want := []any{
		map[string]any{"name": "report.txt", "mime_type": "text/plain", "size_bytes": 4.0, "uri": "artifact://" + runID + "/report.txt", "text": "a,b\n"},
		map[string]any{"name": "pkgs/", "files": 199.0, "size_bytes": 398.0},
	}
	if d := cmp.Diff(want, body["artifacts"]); d != "" {
		t.Errorf("a file and a folder (-want +got):\n%s", d)
	}
	if how, _ := body["how_to_get"].(string); !strings.Contains(how, "sandboxmcp artifacts "+runID) {
		t.Errorf("how_to_get: got %q, want the command", how)
	}
}

func TestWhatASmallAnswerNames(t *testing.T) {
	r := result(sandboxmcp.Request{}, "")
	r.Artifacts = []sandboxmcp.Artifact{artifact("small.txt", []byte("text")), artifact("large.txt", bytes.Repeat([]byte("l"), 3000)), artifact("zero.txt", []byte("a\x00b"))}
	for i := range 7 {
		r.Metadata = map[string]any{"skipped": append(skipped(r), sandboxmcp.SkippedFile{Name: fmt.Sprint("s", i), Reason: "too large"}), "skipped_total": i + 1}
	}
	r.Network.Denied = []sandboxmcp.DeniedRequest{{Host: "a.example", Times: 2}, {Host: "b.example", Port: 80, Times: 1}}
	body, _, res := smallAnswer(t, newFake(), r)
	if d := cmp.Diff(map[string]any{"denied": []any{map[string]any{"host": "a.example", "times": 2.0}, map[string]any{"host": "b.example", "port": 80.0, "times": 1.0}}}, body["network"]); d != "" {
		t.Errorf("a name that was asked for, and a connection (-want +got):\n%s", d)
	}
	if links := blocks(res, "resource_link"); len(links) != 2 {
		t.Errorf("got links %v, want those of the files whose text is not there", links)
	}
	if got, _ := body["skipped"].([]any); len(got) != 5 {
		t.Errorf("got %d skipped files named, want 5", len(got))
	}
	if d := cmp.Diff(map[string]any{"too large": 7.0}, body["skipped_reasons"]); d != "" {
		t.Errorf("skipped_reasons (-want +got):\n%s", d)
	}
	if body["more_artifacts"] != 2.0 {
		t.Errorf("more_artifacts: got %v, want the 2 that are not named", body["more_artifacts"])
	}
}

func skipped(r sandboxmcp.Result) []sandboxmcp.SkippedFile {
	list, _ := r.Metadata["skipped"].([]sandboxmcp.SkippedFile)
	return list
}

func TestValuesOfASmallAnswer(t *testing.T) {
	figure := picture(t, 9, 9, png.Encode)
	encoded, _ := json.Marshal(figure)
	base64 := strings.Trim(string(encoded), `"`)
	r := result(sandboxmcp.Request{}, "  a\n0 1\n")
	r.Results = []sandboxmcp.RichResult{
		{"text/plain": "  a\n0 1", "text/html": "<table>", "is_main_result": true}, // printed
		{"text/plain": "<Figure>", "image/png": base64},
		{"text/html": "<b>", "text/markdown": "**b**"},
		{"image/png": "bm8gcGljdHVyZQ=="},
		{"image/png": "no base64"},
		{"text/plain": "<Figure>", "image/png": base64},
		{"is_main_result": true},
	}
	r.Artifacts = []sandboxmcp.Artifact{artifact("figure.png", figure)}
	r.Error = &sandboxmcp.ProgramError{Name: "ValueError", Value: "boom", Traceback: []string{"Traceback"}}
	r.Stderr = "Traceback\nValueError: boom\n"
	body, _, res := smallAnswer(t, newFake(), r)
	shown, hidden := map[string]any{"image/png": "shown"}, map[string]any{"image/png": "not shown; whole at run://" + string(r.RequestID) + "/result"}
	if d := cmp.Diff([]any{shown, map[string]any{"text/markdown": "**b**"}, hidden, hidden, shown}, body["results"]); d != "" {
		t.Errorf("results (-want +got):\n%s", d)
	}
	if got := len(blocks(res, "image")); got != 1 {
		t.Errorf("got %d pictures, want the one that was shown and saved once", got)
	}
	if d := cmp.Diff(map[string]any{"name": "ValueError", "value": "boom"}, body["error"]); d != "" {
		t.Errorf("error (-want +got):\n%s", d)
	}
	r.Stderr = ""
	if body, _, _ := smallAnswer(t, newFake(), r); body["error"].(map[string]any)["traceback"] == nil {
		t.Error("got no traceback, want it where stderr does not show it")
	}
}

func TestMoreIsGivenOnRequest(t *testing.T) {
	f := newFake()
	f.config.Small = true
	f.files = map[string][]byte{"b.bin": {0, 1, 2}, "t.txt": []byte("text")}
	p := legacy(t, f)
	files := func(args map[string]any) (map[string]any, map[string]map[string]any) {
		body := p.good("get_artifacts", args)
		list, _ := body["artifacts"].([]any)
		named := map[string]map[string]any{}
		for _, x := range list {
			file, _ := x.(map[string]any)
			name, _ := file["name"].(string)
			named[name] = file
		}
		return body, named
	}
	body, list := files(map[string]any{"request_id": runID})
	manifest, _ := body["manifest"].(map[string]any)
	if len(manifest) != 2 || list["b.bin"]["sha256"] != manifest["b.bin"] || list["b.bin"]["content_b64"] != nil || list["t.txt"]["text"] != "text" || body["receipt"] != nil {
		t.Errorf("got %v, want hashes, text as text, no base64 and no receipt", body)
	}
	body, list = files(map[string]any{"request_id": runID, "include_content": true, "include_receipt": true})
	if list["b.bin"]["content_b64"] != "AAEC" || list["t.txt"]["content_b64"] != nil || body["receipt"] == nil {
		t.Errorf("got %v, want the content that is no text, and the receipt", body)
	}
	f.files = nil
	if body, _ = files(map[string]any{"request_id": runID}); body["status"] != "completed" || body["manifest"] != nil {
		t.Errorf("without files: got %v, want no manifest", body)
	}
}

func TestASmallAnswerOfRunPython(t *testing.T) {
	f := newFake()
	f.config.Small = true
	figure := picture(t, 9, 9, png.Encode)
	f.execute = func(_ context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		r := result(req, "42\n")
		r.Note = "A note."
		for i := range 30 {
			r.Artifacts = append(r.Artifacts, artifact(fmt.Sprintf("f%02d.txt", i), []byte("x")))
		}
		r.Artifacts = append(r.Artifacts, artifact("p.png", figure))
		return r, nil
	}
	p := legacy(t, f)
	res := p.call("sandbox_run_python", map[string]any{"code": "x"})
	body := structured(res)
	files, _ := body["artifacts"].([]any)
	if n := len(files); n == 0 || n > 20 || len(blocks(res, "image")) != 1 {
		t.Errorf("got %d files and %d pictures, want at most 20 and one", n, len(blocks(res, "image")))
	}
	if want := fmt.Sprintf("A note. %d more files: call sandbox_list_artifacts.", 31-len(files)); body["note"] != want {
		t.Errorf("note: got %q, want %q", body["note"], want)
	}
	for _, field := range []string{"session_id", "run_id", "exit_code", "stdout", "stderr", "stdout_truncated", "stderr_truncated", "duration_ms", "status"} {
		if _, ok := body[field]; !ok {
			t.Errorf("got no %s, want every field of mcp-code-sandbox", field)
		}
	}
}

func TestPartsOfResources(t *testing.T) {
	f := newFake()
	f.files["a.txt"] = []byte("0123é56789")
	f.output["stdout"] = []byte("output")
	f.put("stays", map[string]string{"s.txt": "of a session"})
	p := legacy(t, f)
	read := func(uri string) map[string]any {
		m := p.request("resources/read", map[string]any{"uri": uri})
		res, _ := m["result"].(map[string]any)
		list, _ := res["contents"].([]any)
		if len(list) != 1 {
			return m
		}
		c, _ := list[0].(map[string]any)
		return c
	}
	for uri, want := range map[string]string{
		"artifact://" + runID + "/a.txt":                      "0123é56789",
		"artifact://" + runID + "/a.txt?offset=2":             "23é56789",
		"artifact://" + runID + "/a.txt?offset=2&max_bytes=3": "23", // not half of é
		"artifact://stays/s.txt":                              "of a session",
		"run://" + runID + "/stdout?offset=3":                 "put",
	} {
		if got := read(uri)["text"]; got != want {
			t.Errorf("%s: got %q, want %q", uri, got, want)
		}
	}
	var whole map[string]any
	text, _ := read("run://" + runID + "/result")["text"].(string)
	if err := json.Unmarshal([]byte(text), &whole); err != nil || whole["receipt"] == nil || whole["namespace"] != "team" {
		t.Errorf("result: got %.200q (%v), want every field", text, err)
	}
	for _, bad := range []string{"?offset=-1", "?offset=x", "?size=3"} {
		if m := read("artifact://" + runID + "/a.txt" + bad); m["error"] == nil || !strings.Contains(fmt.Sprint(m["error"]), "offset=N") {
			t.Errorf("%s: got %v, want an error that says what is known", bad, m)
		}
	}
	if m := read("artifact://gone/s.txt"); m["error"] == nil {
		t.Errorf("an unknown session: got %v, want an error", m)
	}
}

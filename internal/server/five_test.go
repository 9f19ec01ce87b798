package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// fails checks that a call is an error of the code, and returns its body.
func (p *pipe) fails(code sandboxmcp.Code, tool string, args map[string]any) map[string]any {
	p.t.Helper()
	res := p.call(tool, args)
	body := structured(res)
	if res["isError"] != true || body["error"] != string(code) {
		p.t.Errorf("%s %.200v: got %.300v, want error %s", tool, args, body, code)
	}
	return body
}

// good checks that a call is none, and returns its body.
func (p *pipe) good(tool string, args map[string]any) map[string]any {
	p.t.Helper()
	res := p.call(tool, args)
	if res["isError"] == true {
		p.t.Errorf("%s %.200v: got %.300v, want no error", tool, args, structured(res))
	}
	return structured(res)
}

func TestFiveOnly(t *testing.T) {
	f := newFake()
	f.config.Tools = server.FiveTools
	p := dial(t, f)
	hello := p.hello("2025-06-18")
	info, _ := hello["serverInfo"].(map[string]any)
	if got, want := info["name"], "code_sandbox_mcp"; got != want {
		t.Errorf("name = %v, want %v", got, want)
	}
	words, _ := hello["instructions"].(string)
	if strings.Contains(words, "execute_code") || !strings.Contains(words, "sandbox_run_python") || len(words) > 2000 {
		t.Errorf("got the instructions %s, want those of the five tools within 2000 bytes", words)
	}
	want := map[string][]any{
		"sandbox_upload_file":    {"Upload File to Sandbox", false, false, false, false},
		"sandbox_run_python":     {"Run Python in Sandbox", false, false, false, false},
		"sandbox_read_artifact":  {"Read Artifact from Sandbox", true, false, true, false},
		"sandbox_list_artifacts": {"List Sandbox Artifacts", true, false, true, false},
		"sandbox_close_session":  {"Close Sandbox Session", false, true, false, false},
	}
	got := map[string][]any{}
	for _, tool := range listTools(t, p) {
		a, _ := tool["annotations"].(map[string]any)
		name, _ := tool["name"].(string)
		got[name] = []any{a["title"], a["readOnlyHint"], a["destructiveHint"], a["idempotentHint"], a["openWorldHint"]}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("tools (-want +got):\n%s", d)
	}
	m := p.request("tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"code": "1"}})
	if m["error"] == nil {
		t.Errorf("got %v from execute_code, want a protocol error", m)
	}
}

func TestSessionIDs(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	calls := map[string]map[string]any{
		"sandbox_upload_file": {"filename": "a", "content_base64": ""}, "sandbox_run_python": {"code": "1"}, "sandbox_list_artifacts": {},
		"sandbox_read_artifact": {"path": "/mnt/data/a"}, "sandbox_close_session": {},
		"create_session": {}, "terminate_session": {}, "inspect_state": {}, "execute_code": {"code": "1"},
	}
	for _, id := range []string{"", strings.Repeat("x", 65), "a b", "a/b", "a.b", "é", "../x", "abc\n", "a\x00", "%61"} {
		for tool, args := range calls {
			args["session_id"] = id
			p.fails(sandboxmcp.CodeInvalidSessionID, tool, args)
		}
		p.fails(sandboxmcp.CodeInvalidSessionID, "bridge_data", map[string]any{"data": map[string]any{}, "to_session": id})
		p.fails(sandboxmcp.CodeInvalidSessionID, "bridge_data", map[string]any{"from_session": id})
	}
	if n := f.asked(); n != 0 {
		t.Errorf("got %d requests to the engine for ids that cannot be, want none", n)
	}
	for _, id := range []any{"a", "default", "A-Z_09", "0", "-_-", strings.Repeat("x", 64), nil} {
		p.good("sandbox_run_python", map[string]any{"code": "1", "session_id": id})
		want, _ := id.(string)
		if got := f.last(t).SessionID; string(got) != want {
			t.Errorf("session id %v: got %q in the engine, want %q", id, got, want)
		}
	}
	p.fails(sandboxmcp.CodeInvalidArgument, "sandbox_run_python", map[string]any{"code": "1", "session_id": 5})
	p.fails(sandboxmcp.CodeInvalidArgument, "sandbox_list_artifacts", map[string]any{"session_id": nil})
}

func TestUploadNames(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	for name, code := range map[string]sandboxmcp.Code{
		"": "invalid_filename", strings.Repeat("x", 256): "invalid_filename", "a b": "invalid_filename", "a/b": "invalid_filename", "a@b": "invalid_filename",
		"é.txt": "invalid_filename", "foo..bar": "invalid_path", "..hidden": "invalid_path", "..": "invalid_path", ".": "invalid_path", "../etc/passwd": "invalid_filename",
		"abc\n": "invalid_filename", "a\x00b": "invalid_filename", `a\b`: "invalid_filename", "a:b": "invalid_filename", "%2e": "invalid_filename", "...": "invalid_path", "a..": "invalid_path",
	} {
		p.fails(code, "sandbox_upload_file", map[string]any{"filename": name, "content_base64": b64("x")})
	}
	if n := f.asked(); n != 0 {
		t.Errorf("got %d requests to the engine, want none", n)
	}
	for _, name := range []string{"a", "a.b", "A-1_2.csv", ".hidden", "-rf", strings.Repeat("x", 251) + ".txt"} {
		got := p.good("sandbox_upload_file", map[string]any{"filename": name, "content_base64": b64("x"), "session_id": "n"})
		if d := cmp.Diff(map[string]any{"session_id": "n", "path": "/mnt/data/" + name}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestUploadContent(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	for _, bad := range []string{"%%%%", "QUJD\n", "QUI", "_-8=", "QUJD ", "QU\r\nJD", "Q===", "====", "QUJD=", "QUJ", "QR==", "Q\x00==", "ＱＵ=="} {
		p.fails(sandboxmcp.CodeInvalidContent, "sandbox_upload_file", map[string]any{"filename": "a", "content_base64": bad})
	}
	if n := f.asked(); n != 0 {
		t.Errorf("got %d requests to the engine, want none", n)
	}
	raw := string([]byte{0, 255, 254, 10, 13})
	for _, data := range []string{"", "a", "ab", "abc", raw} {
		p.good("sandbox_upload_file", map[string]any{"filename": "a", "content_base64": b64(data), "overwrite": true})
		want := sandboxmcp.Upload{
			Name: "a", Content: []byte(data), Overwrite: true,
			Session: &sandboxmcp.SessionSpec{Language: sandboxmcp.Python, Limits: sandboxmcp.Limits{MaxOutputBytes: 102_400}, Modest: true, Fresh: true, Offline: true},
		}
		if d := cmp.Diff(want, f.uploads[len(f.uploads)-1]); d != "" {
			t.Errorf("upload (-want +got):\n%s", d)
		}
	}
	p.fails(sandboxmcp.CodeFileExists, "sandbox_upload_file", map[string]any{"filename": "a", "content_base64": ""})
}

func TestUploadSizes(t *testing.T) {
	for _, limit := range []int{1000, 1001, 1002} {
		f := newFake()
		f.config.Five.MaxUploadBytes = int64(limit)
		p := legacy(t, f)
		for size, fits := range map[int]bool{limit - 1: true, limit: true, limit + 1: false, limit + 2: false, limit + 100: false} {
			args := map[string]any{"filename": "a", "overwrite": true, "content_base64": b64(strings.Repeat("x", size))}
			if fits {
				p.good("sandbox_upload_file", args)
				continue
			}
			text, _ := p.fails(sandboxmcp.CodeUploadTooLarge, "sandbox_upload_file", args)["message"].(string)
			if !strings.Contains(text, "limit") {
				t.Errorf("got message %q, want the limit in it", text)
			}
		}
	}
}

func TestReadPaths(t *testing.T) {
	f := newFake()
	f.put("s", map[string]string{"a.txt": "x", "sub/f.txt": "y", "a..b": "z"})
	p := legacy(t, f)
	for _, path := range []string{
		"/etc/passwd", "a.txt", "/mnt/data", "/mnt/data/", "/mnt/data/.", "/mnt/data/../data/a.txt", "/mnt/data/sub/../a.txt", "//mnt/data/a.txt", "///mnt/data/a.txt", "/mnt/datax/a.txt",
		"/mnt", "", "/", "/mnt/data/..", "../mnt/data/a.txt", "/mnt/data/a.txt\x00.png", "/mnt/data/" + strings.Repeat("x", 256), "/mnt/data/" + strings.Repeat("a/", 2100), "./a.txt", "~/a.txt",
	} {
		p.fails(sandboxmcp.CodeInvalidPath, "sandbox_read_artifact", map[string]any{"session_id": "s", "path": path})
		p.fails(sandboxmcp.CodeSessionNotFound, "sandbox_read_artifact", map[string]any{"session_id": "none", "path": path})
	}
	if len(f.reads) != 0 {
		t.Errorf("got reads of %q, want none", f.reads)
	}
	for _, path := range []string{"/mnt/data//sub/f.txt", "/mnt/data/./sub/f.txt", "/mnt//data/sub/f.txt", "/mnt/data/sub/f.txt", "/mnt/data/sub/f.txt/"} {
		if got, want := p.good("sandbox_read_artifact", map[string]any{"session_id": "s", "path": path})["path"], "/mnt/data/sub/f.txt"; got != want {
			t.Errorf("path of %s = %v, want %v", path, got, want)
		}
	}
	p.good("sandbox_read_artifact", map[string]any{"session_id": "s", "path": "/mnt/data/a..b"})
	p.fails(sandboxmcp.CodeNotFound, "sandbox_read_artifact", map[string]any{"session_id": "s", "path": "/mnt/data/none"})
}

func TestCheckOrder(t *testing.T) {
	f := newFake()
	f.config.Five = server.Five{MaxUploadBytes: 10, MaxCodeBytes: 10}
	f.put("s", nil)
	p := legacy(t, f)
	long, percent := strings.Repeat("x", 11), strings.Repeat("%", 50)
	p.fails("invalid_session_id", "sandbox_run_python", map[string]any{"code": long, "session_id": "a b"})
	text, _ := p.fails("code_too_large", "sandbox_run_python", map[string]any{"code": long, "session_id": "ok"})["message"].(string)
	if !strings.Contains(text, "11") || !strings.Contains(text, "10") {
		t.Errorf("got message %q, want size and limit in it", text)
	}
	p.fails("code_too_large", "sandbox_run_python", map[string]any{"code": "éééééé"})
	p.good("sandbox_run_python", map[string]any{"code": "ééééé"})
	p.fails("invalid_session_id", "sandbox_upload_file", map[string]any{"filename": "a b", "content_base64": percent, "session_id": "a b"})
	p.fails("upload_too_large", "sandbox_upload_file", map[string]any{"filename": "a b", "content_base64": percent})
	p.fails("invalid_filename", "sandbox_upload_file", map[string]any{"filename": "a b", "content_base64": "%%%%"})
	p.fails("invalid_content", "sandbox_upload_file", map[string]any{"filename": "a", "content_base64": "%%%%"})
	p.fails("session_not_found", "sandbox_read_artifact", map[string]any{"session_id": "none", "path": "/etc/passwd"})
	p.fails("invalid_session_id", "sandbox_read_artifact", map[string]any{"session_id": "a b", "path": "/etc/passwd"})
	p.fails("session_not_found", "sandbox_list_artifacts", map[string]any{"session_id": "ok"})
}

func TestRunPythonRequest(t *testing.T) {
	limits := sandboxmcp.Limits{MaxRAMMB: 256, MaxCPUCores: 0.5, TimeoutSeconds: 7, MaxOutputBytes: 100}
	f := newFake()
	f.config.Five = server.Five{Limits: limits, TTL: time.Hour, Stateful: true}
	p := legacy(t, f)
	p.good("sandbox_run_python", map[string]any{"code": "c", "session_id": "s"})
	got := f.last(t)
	if ok := regexp.MustCompile(`^run_\d{8}T\d{6}Z_[0-9a-f]{8}$`).MatchString(string(got.ID)); !ok {
		t.Errorf("got run id %q, want run_, a time and 8 digits", got.ID)
	}
	first := got.ID
	got.ID = ""
	want := sandboxmcp.Request{
		Code: "c", Language: sandboxmcp.Python, SessionID: "s",
		NoSecrets: true, Reader: sandboxmcp.ReaderPython, Modest: true, Offline: true, Display: sandboxmcp.DisplayFigures,
		Limits:  sandboxmcp.Limits{TimeoutSeconds: 7, MaxOutputBytes: 100}, // the rest was settled with the session
		Session: &sandboxmcp.SessionSpec{Language: sandboxmcp.Python, Limits: limits, Modest: true, TTL: time.Hour, Offline: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
	p.good("sandbox_run_python", map[string]any{"code": "c"})
	if f.last(t).ID == first {
		t.Errorf("got the id %s for two runs, want two ids", first)
	}

	f = newFake()
	p = legacy(t, f)
	p.good("sandbox_run_python", map[string]any{"code": strings.Repeat("x", 102_400)})
	if got := f.last(t); !got.Session.Fresh || got.Limits != (sandboxmcp.Limits{MaxOutputBytes: 102_400}) || got.Display != sandboxmcp.DisplayFigures {
		t.Errorf("defaults: got %+v, want a fresh interpreter, 102400 bytes of output and figures shown", got)
	}
	p.fails("code_too_large", "sandbox_run_python", map[string]any{"code": strings.Repeat("x", 102_401)})
}

func TestRunPythonAnswer(t *testing.T) {
	f := newFake()
	f.config.Link = func(ns sandboxmcp.Namespace, id, path string, _ int64) string {
		if path == "/mnt/data/bad" {
			return ""
		}
		return "http://h/" + string(ns) + "/" + id + path
	}
	status, exit, id := sandboxmcp.StatusCompleted, 0, made
	long := strings.Repeat("x", 60_000)
	f.execute = func(_ context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		r := result(req, long)
		r.RequestID, r.Status, r.ExitCode, r.SessionID, r.DurationMS, r.StdoutTruncated = req.ID, status, exit, &id, 12.6, true
		r.Isolation = &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2}
		for _, name := range []string{"a.csv", ".dot", "sub/f", ".bridge/k.json", "bad"} {
			a := artifact(name, []byte("1"))
			a.MIMEType = "text/csv; charset=utf-8"
			r.Artifacts = append(r.Artifacts, a)
		}
		return r, nil
	}
	p := legacy(t, f)
	got := p.good("sandbox_run_python", map[string]any{"code": "x"})
	file := func(name string, url any) any {
		return map[string]any{
			"path": "/mnt/data/" + name, "filename": name, "size_bytes": 1.0, "mime_type": "text/csv", "sha256": "sum-" + name, "download_url": url,
		}
	}
	want := map[string]any{
		"session_id": string(made), "run_id": string(f.last(t).ID), "exit_code": 0.0, "stdout": long, "stderr": "", "stdout_truncated": true, "stderr_truncated": false,
		"artifacts":   []any{file("a.csv", "http://h/team/"+string(made)+"/mnt/data/a.csv"), file("bad", nil)},
		"duration_ms": 13.0, "status": "completed",
		"isolation": map[string]any{"tier": "L2", "backend": "", "walls": []any{}, "weak": []any{}, "kernel": "", "policy_sha256": ""},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("answer (-want +got):\n%s", d)
	}
	for s, e := range map[sandboxmcp.Status]int{sandboxmcp.StatusFailed: 2, sandboxmcp.StatusTimedOut: -1} {
		status, exit = s, e
		if got := p.good("sandbox_run_python", map[string]any{"code": "x"}); len(got["artifacts"].([]any)) != 0 || got["exit_code"] != float64(e) {
			t.Errorf("a run that %s: got %v, want no artifacts", s, got["artifacts"])
		}
	}
}

func TestListAndRead(t *testing.T) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 3))); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	f.put("s", map[string]string{"p.png": b.String(), "d.csv": "1,2\n", "big": strings.Repeat("x", 2000), "no.png": "no picture"})
	f.types["no.png"] = "image/png"
	f.config.Link = func(_ sandboxmcp.Namespace, id, path string, _ int64) string { return "http://h/" + id + path }
	f.config.Five.MaxReadBytes = 1500
	p := legacy(t, f)
	list, _ := p.good("sandbox_list_artifacts", map[string]any{"session_id": "s"})["artifacts"].([]any)
	var names []string
	for _, x := range list {
		a, _ := x.(map[string]any)
		name, _ := a["filename"].(string)
		names = append(names, name)
		if sum, _ := a["sha256"].(string); len(sum) != 64 || a["download_url"] != "http://h/s/mnt/data/"+name {
			t.Errorf("got %v, want a hash and a link", a)
		}
		if name == "d.csv" && a["mime_type"] != "text/csv" {
			t.Errorf("got mime_type %v, want text/csv", a["mime_type"])
		}
	}
	if want := []string{"big", "d.csv", "no.png", "p.png"}; !slices.Equal(names, want) {
		t.Errorf("got names %v, want %v", names, want)
	}
	res := p.call("sandbox_read_artifact", map[string]any{"session_id": "s", "path": "/mnt/data/p.png"})
	want := map[string]any{"path": "/mnt/data/p.png", "filename": "p.png", "mime_type": "image/png", "size_bytes": float64(b.Len()), "content_base64": b64(b.String())}
	if d := cmp.Diff(want, structured(res)); d != "" {
		t.Errorf("read (-want +got):\n%s", d)
	}
	if pics := blocks(res, "image"); len(pics) != 1 || pics[0]["data"] != b64(b.String()) || pics[0]["mimeType"] != "image/png" {
		t.Errorf("got image blocks %v, want the picture", pics)
	}
	if f.limits[0] != 1500 {
		t.Errorf("got limit %d, want 1500", f.limits[0])
	}
	for _, name := range []string{"d.csv", "no.png"} {
		res := p.call("sandbox_read_artifact", map[string]any{"session_id": "s", "path": "/mnt/data/" + name})
		if n := len(blocks(res, "image")); n != 0 || res["isError"] == true {
			t.Errorf("%s: got %d image blocks and %v, want none and no error", name, n, structured(res))
		}
	}
	body := p.fails("artifact_too_large", "sandbox_read_artifact", map[string]any{"session_id": "s", "path": "/mnt/data/big"})
	if body["size_bytes"] != 2000.0 || body["download_url"] != "http://h/s/mnt/data/big" {
		t.Errorf("got body %v, want size and link", body)
	}
}

// TestTheReadBoundAppliesToThePart: a file above the bound can be read in parts within it.
func TestTheReadBoundAppliesToThePart(t *testing.T) {
	f := newFake()
	f.put("s", map[string]string{"big": strings.Repeat("x", 1996) + "tail"})
	f.config.Five.MaxReadBytes = 1500
	p := legacy(t, f)
	read := func(more map[string]any) map[string]any {
		args := map[string]any{"session_id": "s", "path": "/mnt/data/big", "as": "text"}
		maps.Copy(args, more)
		return args
	}
	got := p.good("sandbox_read_artifact", read(map[string]any{"offset": 1996, "max_bytes": 100}))
	if got["text"] != "tail" || got["size_bytes"] != 2000.0 {
		t.Errorf("got %v, want the last 4 of 2000 bytes", got)
	}
	if got := p.good("sandbox_read_artifact", read(map[string]any{"offset": 1000})); len(got["text"].(string)) != 1000 {
		t.Errorf("got %d characters, want the 1000 from the offset on", len(got["text"].(string)))
	}
	for _, offset := range []int{2000, 5000} {
		got := p.good("sandbox_read_artifact", read(map[string]any{"offset": offset, "max_bytes": 10}))
		if note, _ := got["note"].(string); got["text"] != "" || !strings.Contains(note, "the file has 2000 bytes") {
			t.Errorf("from offset %d: got %v, want the size in a note", offset, got)
		}
	}
	for _, args := range []map[string]any{read(nil), read(map[string]any{"offset": 100}), read(map[string]any{"max_bytes": 1501})} {
		if body := p.fails("artifact_too_large", "sandbox_read_artifact", args); body["size_bytes"] != 2000.0 {
			t.Errorf("%v: got size %v, want 2000", args, body["size_bytes"])
		}
	}
	f.put("s", map[string]string{"huge": strings.Repeat("x", 32<<20) + "tail"})
	got = p.good("sandbox_read_artifact", map[string]any{"session_id": "s", "path": "/mnt/data/huge", "as": "text", "offset": 32<<20 - 1, "max_bytes": 4})
	if got["text"] != "xtai" || got["size_bytes"] != float64(32<<20+4) || got["next_offset"] != float64(32<<20+3) {
		t.Errorf("got %v, want 4 bytes of a file that is not read into memory, and where it goes on", got)
	}
	if got = p.good("sandbox_read_artifact", map[string]any{"session_id": "s", "path": "/mnt/data/huge", "offset": 40 << 20}); !strings.Contains(fmt.Sprint(got["note"]), "33554436 bytes") {
		t.Errorf("got %v, want the size in a note", got)
	}
	p.fails("artifact_too_large", "sandbox_read_artifact", map[string]any{"session_id": "s", "path": "/mnt/data/huge", "offset": 1, "max_bytes": 1501})
	if n := f.opened.Load(); n != 0 {
		t.Errorf("got %d copies that are not closed, want none", n)
	}
	if res := p.request("resources/read", map[string]any{"uri": "artifact://s/big?offset=1996&max_bytes=4"}); res["error"] != nil {
		t.Errorf("got %v, want the part of the resource", res["error"])
	}
}

func TestClose(t *testing.T) {
	f := newFake()
	f.put("s", nil)
	f.busy["s"] = true
	p := legacy(t, f)
	p.fails("session_not_found", "sandbox_close_session", map[string]any{"session_id": "none"})
	p.fails("session_busy", "sandbox_close_session", map[string]any{"session_id": "s"})
	if len(f.ended) != 0 {
		t.Errorf("got %v ended, want none", f.ended)
	}
	f.mu.Lock()
	f.busy["s"] = false
	f.mu.Unlock()
	if got := p.good("sandbox_close_session", map[string]any{"session_id": "s"}); got["status"] != "closed" {
		t.Errorf("got %v, want closed", got)
	}
	p.fails("session_not_found", "sandbox_close_session", map[string]any{"session_id": "s"})
}

// TestTextInAndOut: text is uploaded and read as text, in parts, and a picture comes alone.
func TestTextInAndOut(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	id, _ := p.good("sandbox_upload_file", map[string]any{"filename": "t.txt", "content": "häl,b\n1,2\n"})["session_id"].(string)
	figure := picture(t, 9, 9, png.Encode)
	p.good("sandbox_upload_file", map[string]any{"session_id": id, "filename": "p.png", "content_base64": base64.StdEncoding.EncodeToString(figure)})
	read := func(name, as string, more map[string]any) map[string]any {
		t.Helper()
		args := map[string]any{"session_id": id, "path": "/mnt/data/" + name, "as": as}
		maps.Copy(args, more)
		return p.call("sandbox_read_artifact", args)
	}
	for _, c := range []struct {
		more map[string]any
		want string
	}{
		{nil, "häl,b\n1,2\n"},
		{map[string]any{"offset": 7}, "1,2\n"},
		{map[string]any{"offset": 7, "max_bytes": 3}, "1,2"},
		{map[string]any{"max_bytes": 2}, "h"}, // not half of ä
		{map[string]any{"offset": 100}, ""},
	} {
		body := structured(read("t.txt", "text", c.more))
		if body["text"] != c.want || body["size_bytes"] != 11.0 || body["content_base64"] != nil {
			t.Errorf("%v: got %v, want the text %q of 11 bytes", c.more, body, c.want)
		}
	}
	if body := structured(read("t.txt", "base64", map[string]any{"offset": 1, "max_bytes": 1})); body["content_base64"] != "ww==" {
		t.Errorf("got %v, want one byte", body)
	}
	res := read("p.png", "image", nil)
	if body := structured(res); len(blocks(res, "image")) != 1 || body["content_base64"] != nil || body["text"] != nil {
		t.Errorf("a picture alone: got %v, want it without its bytes", body)
	}
	sameText(t, "sandbox_read_artifact", res)
	for _, c := range []struct {
		name, as string
		more     map[string]any
	}{{"p.png", "text", nil}, {"t.txt", "image", nil}, {"t.txt", "text", map[string]any{"offset": 2}}} {
		if got := structured(read(c.name, c.as, c.more))["error"]; got != "invalid_content" {
			t.Errorf("%s as %s: got %v, want invalid_content", c.name, c.as, got)
		}
	}
	for _, content := range []map[string]any{{}, {"content": "x", "content_base64": "eA=="}} {
		args := map[string]any{"filename": "u.txt"}
		maps.Copy(args, content)
		p.fails(sandboxmcp.CodeInvalidArgument, "sandbox_upload_file", args)
	}
}

// TestRunPythonShowsFigures: the figures of a run are image blocks, in a full answer too, and
// the fields stay those of mcp-code-sandbox.
func TestRunPythonShowsFigures(t *testing.T) {
	f := newFake()
	figure := picture(t, 9, 9, png.Encode)
	f.execute = func(_ context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		r := result(req, "")
		r.Results = []sandboxmcp.RichResult{{"text/plain": "<Figure>", "image/png": base64.StdEncoding.EncodeToString(figure), "is_main_result": false}}
		r.Artifacts = []sandboxmcp.Artifact{artifact("p.png", picture(t, 8, 8, png.Encode))}
		return r, nil
	}
	p := legacy(t, f)
	res := p.call("sandbox_run_python", map[string]any{"code": "x"})
	if n := len(blocks(res, "image")); n != 1 || structured(res)["results"] != nil {
		t.Errorf("got %d pictures and results %v, want the figure as a block alone", n, structured(res)["results"])
	}
}

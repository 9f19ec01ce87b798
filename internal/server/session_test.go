package server_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestCreateSession(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	got := p.good("create_session", map[string]any{
		"language": "node", "timeout_seconds": 9, "session_id": "mine", "ttl_minutes": 0.025,
		"limits": map[string]any{"max_ram_mb": 96, "max_cpu_cores": 0.5, "max_processes": 2, "max_output_bytes": 100},
	})
	for _, key := range []string{"id", "session_id", "language", "backend", "status", "created_at", "last_activity", "expires_at", "resource_limits", "namespace", "isolation"} {
		if got[key] == nil {
			t.Errorf("got %[2]v, want %[1]s in it", key, got)
		}
	}
	if got["id"] != "mine" || got["session_id"] != "mine" {
		t.Errorf("got the ids %v and %v, want mine", got["id"], got["session_id"])
	}
	want := sandboxmcp.SessionSpec{
		ID: "mine", Language: sandboxmcp.Node, TTL: 1500 * time.Millisecond,
		Limits: sandboxmcp.Limits{MaxRAMMB: 96, MaxCPUCores: 0.5, TimeoutSeconds: 9, MaxProcesses: 2, MaxOutputBytes: 100},
	}
	if d := cmp.Diff(want, f.specs[0]); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
	p.good("create_session", map[string]any{})
	if d := cmp.Diff(sandboxmcp.SessionSpec{}, f.specs[1]); d != "" {
		t.Errorf("spec of a call without arguments (-want +got):\n%s", d)
	}
	p.good("create_session", map[string]any{"ttl_minutes": 1e-300, "timeout_seconds": 5, "limits": map[string]any{"timeout_seconds": 5}})
	if got := f.specs[2]; got.TTL <= 0 || got.Limits.TimeoutSeconds != 5 {
		t.Errorf("got a life of %v and a timeout of %v, want a tiny one, not the default, and 5", got.TTL, got.Limits.TimeoutSeconds)
	}
}

func TestCreateSessionRefuses(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	for args, code := range map[string]sandboxmcp.Code{
		`{"limits":{"max_ram_mb":0}}`:                              "invalid_argument",
		`{"limits":{"max_ram_mb":-1}}`:                             "invalid_argument",
		`{"limits":{"max_ram_mb":1.5}}`:                            "invalid_argument",
		`{"limits":{"max_cpu_cores":0}}`:                           "invalid_argument",
		`{"limits":{"max_cpu_cores":"1"}}`:                         "invalid_argument",
		`{"limits":{"colour":1}}`:                                  "invalid_argument",
		`{"limits":{"Max_RAM_MB":1}}`:                              "invalid_argument",
		`{"limits":[]}`:                                            "invalid_argument",
		`{"limits":null}`:                                          "invalid_argument",
		`{"timeout_seconds":5,"limits":{"timeout_seconds":6}}`:     "invalid_argument",
		`{"ttl_minutes":0}`:                                        "invalid_argument",
		`{"ttl_minutes":-1}`:                                       "invalid_argument",
		`{"ttl_minutes":1e9}`:                                      "invalid_argument",
		`{"language":"cobol"}`:                                     "unsupported_language",
		`{"language":"node","colour":1}`:                           "invalid_argument",
		`{"session_id":null}`:                                      "invalid_argument",
		`{"limits":{"max_output_bytes":1e18,"max_processes":0.1}}`: "invalid_argument",
	} {
		p.fails(code, "create_session", nil2raw(args))
	}
	if n := f.asked(); n != 0 {
		t.Errorf("got %d requests to the engine, want none", n)
	}
	text, _ := p.fails("invalid_argument", "create_session", nil2raw(`{"limits":{"colour":1}}`))["message"].(string)
	if want := `limits["colour"] is unknown; limits takes max_ram_mb, max_cpu_cores, timeout_seconds, max_processes, max_output_bytes`; text != want {
		t.Errorf("got message %q, want %q", text, want)
	}
}

func TestTerminateSession(t *testing.T) {
	f := newFake()
	f.put("s", nil)
	p := legacy(t, f)
	if d := cmp.Diff(map[string]any{"killed": "s", "wiped": true}, p.good("terminate_session", map[string]any{"session_id": "s"})); d != "" {
		t.Errorf("answer (-want +got):\n%s", d)
	}
	p.fails("session_not_found", "terminate_session", map[string]any{"session_id": "s"})
}

func TestBridge(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	raw := `{"n":12345678901234567890,"f":1.10,"u":"ü"}`
	got := p.good("bridge_data", nil2raw(`{"data":{"k":`+raw+`},"to_session":"b","from_session":"a","keys":["x","y"]}`))
	if got["bridged"] != true || got["keys"] == nil || got["data"] == nil {
		t.Errorf("got %v, want bridged, keys and data", got)
	}
	want := sandboxmcp.Bridge{Data: map[string]json.RawMessage{"k": json.RawMessage(raw)}, From: "a", To: "b", Keys: []string{"x", "y"}}
	if d := cmp.Diff(want, f.bridges[0]); d != "" {
		t.Errorf("bridge (-want +got):\n%s", d)
	}
	p.good("bridge_data", map[string]any{"from_session": "a"})
	if d := cmp.Diff(sandboxmcp.Bridge{From: "a"}, f.bridges[1]); d != "" {
		t.Errorf("bridge (-want +got):\n%s", d)
	}
	p.good("bridge_data", nil2raw(`{"data":{}}`))
	for _, args := range []string{`{"data":null}`, `{"data":[]}`, `{"from_session":"a","keys":"k"}`, `{"from_session":"a","keys":[1]}`} {
		p.fails("invalid_argument", "bridge_data", nil2raw(args))
	}
	if got, want := len(f.bridges), 3; got != want {
		t.Errorf("%d bridges, want %d", got, want)
	}
}

func TestInspect(t *testing.T) {
	f := newFake()
	f.put("s", map[string]string{"a.txt": "x"})
	f.config.Link = func(_ sandboxmcp.Namespace, id, path string, _ int64) string { return "http://h/" + id + path }
	p := legacy(t, f)
	got := p.good("inspect_state", map[string]any{"namespace": "default"})
	for _, key := range []string{"vault_keys", "files"} {
		if list, ok := got[key].([]any); !ok || len(list) != 0 {
			t.Errorf("%s = %v, want an empty list", key, got[key])
		}
	}
	if d := cmp.Diff(map[string]any{"allowed": []any{}, "pending": []any{}}, got["egress"]); d != "" {
		t.Errorf("egress (-want +got):\n%s", d)
	}
	if env, ok := got["env"].(map[string]any); !ok || len(env) != 0 {
		t.Errorf("env = %v, want an empty object", got["env"])
	}
	if list, _ := got["sessions"].([]any); len(list) != 1 {
		t.Errorf("got sessions %v, want one", got["sessions"])
	}
	files, _ := p.good("inspect_state", map[string]any{"session_id": "s"})["files"].([]any)
	file, _ := files[0].(map[string]any)
	if got, want := file["download_url"], "http://h/s/mnt/data/a.txt"; got != want {
		t.Errorf("download_url = %v, want %v", got, want)
	}
	p.fails("session_not_found", "inspect_state", map[string]any{"session_id": "none"})
	p.fails("access_denied", "inspect_state", map[string]any{"namespace": "other"})
}

func TestExecuteInSession(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	p.good("execute_code", map[string]any{"code": "1", "session_id": "s"})
	if got := f.last(t); got.SessionID != "s" || got.Display != sandboxmcp.DisplayResults || got.Session != nil || got.Language != "" {
		t.Errorf("got request %+v, want one of session s that shows results", got)
	}
	p.good("execute_code", map[string]any{"code": "1"})
	if got := f.last(t); got.SessionID != "" || got.Display != sandboxmcp.DisplayStdout {
		t.Errorf("got request %+v, want one of no session that shows on stdout", got)
	}
}

// TestResultLinks holds a run's files to links of the run, whose bytes are those
// that were hashed, whatever its session does later.
func TestResultLinks(t *testing.T) {
	f := newFake()
	f.config.Link = func(ns sandboxmcp.Namespace, id, path string, _ int64) string {
		return "http://h/" + string(ns) + "/" + id + "/" + path
	}
	r := result(sandboxmcp.Request{}, "")
	r.Artifacts = []sandboxmcp.Artifact{artifact("sub/a.txt", []byte("x"))}
	list, _ := structured(answers(t, f, r))["artifacts"].([]any)
	a, _ := list[0].(map[string]any)
	if got, want := a["download_url"], "http://h/team/"+runID+"/sub/a.txt"; got != want {
		t.Errorf("download_url = %v, want %v", got, want)
	}
	if r.Artifacts[0].DownloadURL != nil {
		t.Error("got a changed result of the engine, want it as it was")
	}
}

func TestNotesInRuntimes(t *testing.T) {
	f := newFake()
	if got := legacy(t, f).good("list_runtimes", map[string]any{}); got["notes"] != nil {
		t.Errorf("got notes %v, want none", got["notes"])
	}
	f.config.Notes = func() []string { return []string{"HTTP is off"} }
	if d := cmp.Diff([]any{"HTTP is off"}, legacy(t, f).good("list_runtimes", map[string]any{})["notes"]); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

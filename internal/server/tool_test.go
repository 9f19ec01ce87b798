package server_test

import (
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

var update = flag.Bool("update", false, "write the golden files")

func listTools(t *testing.T, p *pipe) []map[string]any {
	t.Helper()
	res, _ := p.request("tools/list", map[string]any{})["result"].(map[string]any)
	list, _ := res["tools"].([]any)
	out := make([]map[string]any, len(list))
	for i, x := range list {
		out[i], _ = x.(map[string]any)
	}
	return out
}

func TestToolsGolden(t *testing.T) {
	tools := listTools(t, legacy(t, newFake()))
	got, err := json.MarshalIndent(tools, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", "tools.json")
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("tools/list is not testdata/tools.json (-want +got); run with -update if it should be:\n%s", d)
	}
}

func TestToolsAreSmallAndComplete(t *testing.T) {
	total := 0
	for _, tool := range listTools(t, legacy(t, newFake())) {
		name, _ := tool["name"].(string)
		b, err := json.Marshal(tool)
		if err != nil {
			t.Fatal(err)
		}
		total += len(b)
		t.Logf("%-22s %5d bytes", name, len(b))
		if len(name) > 40 || tool["description"] == "" {
			t.Errorf("%s: got a name that is too long or no description, want both as clients take them", name)
		}
		in, _ := tool["inputSchema"].(map[string]any)
		if got := in["additionalProperties"]; got != false {
			t.Errorf("%s: additionalProperties = %v, want false", name, got)
		}
		// A host that checks arguments itself tells its model that a value is wrong,
		// and not which are right.
		properties, _ := in["properties"].(map[string]any)
		for arg, p := range properties {
			schema, _ := p.(map[string]any)
			words, _ := schema["description"].(string)
			values, _ := schema["enum"].([]any)
			for _, v := range values {
				if s, _ := v.(string); !strings.Contains(words, s) && arg != "wait_until" { // its default is right for almost every page
					t.Errorf("%s: got a description of %s without %s, want it named", name, arg, s)
				}
			}
		}
		if tool["outputSchema"] == nil {
			t.Errorf("%s: got no output schema, want one", name)
		}
		hints, _ := tool["annotations"].(map[string]any)
		for _, h := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
			if _, ok := hints[h].(bool); !ok {
				t.Errorf("%s: got no %s, want it set", name, h)
			}
		}
		if hints["title"] == nil {
			t.Errorf("%s: got no title, want one", name)
		}
	}
	t.Logf("all %d bytes", total)
	if got, limit := total, 24_000; got > limit {
		t.Errorf("got %d bytes of tools/list, want at most %d: shorten descriptions, or raise it by what a new tool needs; all 28 have to fit 24,000", got, limit)
	}
}

func TestAnswersFitTheirSchemas(t *testing.T) {
	for name, small := range map[string]bool{"Full": false, "Small": true} {
		t.Run(name, func(t *testing.T) { answersFit(t, small) })
	}
}

// TestHostListsAreFour: list_host_access answers with the four lists of the Python project and nothing else.
func TestHostListsAreFour(t *testing.T) {
	got := slices.Sorted(maps.Keys(structured(legacy(t, newFake()).call("list_host_access", nil))))
	if want := []string{"allowed", "approved", "blocked", "pending"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// answersFit calls every tool, and holds its answer to its output schema. An answer in full has
// every field that the schema names.
func answersFit(t *testing.T, small bool) {
	t.Helper()
	f := newFake()
	f.config.Small = small
	f.execute = func(_ context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
		r := result(req, "")
		r.Note, r.Isolation = "A note.", &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2, Weak: []string{"something"}}
		return r, nil
	}
	f.files["a.txt"] = []byte("x")
	p := legacy(t, f)
	calls := map[string]map[string]any{
		"execute_code":  {"code": "x"},
		"get_artifacts": {"request_id": runID, "include_receipt": true},
		"list_runtimes": {},
		"sandbox_stats": {},

		"create_session":    {},
		"terminate_session": {"session_id": "ends"},
		"bridge_data":       {"data": map[string]any{"k": []int{1}}},
		"inspect_state":     {"session_id": "stays"},
		"request_egress":    {"domain": "api.example.com", "wait_seconds": 0},
		"audit_execution":   {"action": "execute"},

		"set_resource_limits": {"max_ram_mb": 256},
		"validate_code":       {"code": "x"},
		"fetch_webpage":       {"url": "https://x.test/"},
		"browser_fetch":       {"url": "https://x.test/", "screenshot": true, "wait_for_selector": "8"},
		"web_search":          {"query": "x"},
		"install_package":     {"language": "python", "packages": []string{"six"}},

		"host_exec":           {"command": "ls"},
		"request_host_access": {"pattern": "ls", "wait_seconds": 0},
		"list_host_access":    {},
		"host_file_read":      {"path": "/a"},
		"host_file_write":     {"path": "/a", "content": ""},
		"host_file_list":      {"path": "/"},
		"host_file_copy":      {"source": "/a"},

		"sandbox_upload_file":    {"filename": "u", "content_base64": ""},
		"sandbox_run_python":     {"code": "x"},
		"sandbox_read_artifact":  {"session_id": "stays", "path": "/mnt/data/a.txt"},
		"sandbox_list_artifacts": {"session_id": "stays"},
		"sandbox_close_session":  {"session_id": "closes"},
	}
	f.put("stays", map[string]string{"a.txt": "x"})
	f.put("ends", nil)
	f.put("closes", nil)
	tools := listTools(t, p)
	if got, want := len(tools), len(calls); got != want {
		t.Fatalf("%d tools, want %d: extend this test", got, want)
	}
	for _, tool := range tools {
		name, _ := tool["name"].(string)
		res := p.call(name, calls[name])
		if res["isError"] == true {
			t.Errorf("%s: got %v, want no error", name, res)
		}
		if err := schemaOf(t, tool["outputSchema"]).Validate(structured(res)); err != nil {
			t.Errorf("%s: got %v, want what the output schema says", name, err)
		}
		// The schema requires nothing, see TestFailuresFitTheirSchemas, and all the
		// same an answer has every field that is named there, but for these.
		out, _ := tool["outputSchema"].(map[string]any)
		fields, _ := out["properties"].(map[string]any)
		for field := range fields {
			if small {
				break
			}
			sometimes := slices.Contains([]string{"state_lost", "stdout_uri", "stderr_uri", "note", "text", "next_offset"}, field)
			if _, ok := structured(res)[field]; !ok && !sometimes {
				t.Errorf("%s: got an answer without %s, want it", name, field)
			}
		}
		if name != "fetch_webpage" && name != "browser_fetch" && name != "web_search" { // whose text is for people and models
			sameText(t, name, res)
		}
	}
}

// TestFailuresFitTheirSchemas: clients made with the first TypeScript SDK hold
// the structured content of a failure to the tool's output schema, too, and show
// their model the mismatch in place of the failure.
func TestFailuresFitTheirSchemas(t *testing.T) {
	p := legacy(t, newFake())
	for _, tool := range listTools(t, p) {
		name, _ := tool["name"].(string)
		res := p.call(name, map[string]any{"no_such_argument": 1})
		if res["isError"] != true || structured(res)["error"] != "invalid_argument" {
			t.Errorf("%s: got %v, want invalid_argument", name, res)
		}
		if err := schemaOf(t, tool["outputSchema"]).Validate(structured(res)); err != nil {
			t.Errorf("%s: got %v, want what the output schema says", name, err)
		}
		sameText(t, name, res)
	}
}

// schemaOf is a schema as it came over the wire.
func schemaOf(t *testing.T, wire any) *jsonschema.Resolved {
	t.Helper()
	b, err := json.Marshal(wire)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err = json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sameText checks that the only text block holds what the structured content holds.
func sameText(t *testing.T, name string, res map[string]any) {
	t.Helper()
	texts := blocks(res, "text")
	if len(texts) != 1 {
		t.Errorf("%s: got %d text blocks, want 1", name, len(texts))
		return
	}
	var got any
	text, _ := texts[0]["text"].(string)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Errorf("%s: got text that is no JSON: %v, want JSON", name, err)
	}
	if d := cmp.Diff(any(structured(res)), got); d != "" {
		t.Errorf("%s: got text that is not the structured content (-want +got):\n%s", name, d)
	}
}

func TestResultKeysInOrder(t *testing.T) {
	res := legacy(t, newFake()).execute("x")
	text, _ := blocks(res, "text")[0]["text"].(string)
	at := -1
	for _, key := range []string{"request_id", "success", "exit_code", "stdout", "stderr", "duration_ms", "language", "artifacts", "resource_usage", "namespace", "metadata", "status"} {
		i := strings.Index(text, `"`+key+`":`)
		if i <= at {
			t.Errorf("%s: got it at %d, want it behind %d", key, i, at)
		}
		at = i
	}
}

func TestBadArguments(t *testing.T) {
	p := legacy(t, newFake())
	for _, c := range []struct {
		tool, args, code string
		words            []string
	}{
		{"execute_code", `{"code":"1","colour":1}`, "invalid_argument", []string{`"colour"`, "timeout_seconds", "backend"}},
		{"execute_code", `{}`, "invalid_argument", []string{"code is missing"}},
		{"execute_code", `{"language":"python"}`, "invalid_argument", []string{"code"}},
		{"execute_code", `{"code":7}`, "invalid_argument", []string{"code is a number", "a string"}},
		{"execute_code", `{"code":"1","timeout_seconds":"soon"}`, "invalid_argument", []string{"timeout_seconds is a string", "an integer"}},
		{"execute_code", `{"code":"1","timeout_seconds":0}`, "invalid_argument", []string{"timeout_seconds is 0"}},
		{"execute_code", `{"code":"1","timeout_seconds":-5}`, "invalid_argument", []string{"timeout_seconds is -5"}},
		{"execute_code", `{"code":"1","timeout_seconds":1.5}`, "invalid_argument", []string{"timeout_seconds", "integer"}},
		{"execute_code", `{"code":"1","timeout_seconds":1e300}`, "invalid_argument", []string{"timeout_seconds", "integer"}},
		{"execute_code", `{"code":"1","timeout_seconds":1e999}`, "invalid_argument", []string{"timeout_seconds", "range"}},
		{"execute_code", `{"code":"1","max_cpu_cores":0}`, "invalid_argument", []string{"max_cpu_cores is 0", "above 0"}},
		{"execute_code", `{"code":"1","max_ram_mb":-1}`, "invalid_argument", []string{"max_ram_mb"}},
		{"execute_code", `{"code":"1","max_processes":0}`, "invalid_argument", []string{"max_processes"}},
		{"execute_code", `{"code":"1","background":"yes"}`, "invalid_argument", []string{"background"}},
		{"execute_code", `{"code":"1","env":[1]}`, "invalid_argument", []string{"env is an array"}},
		{"execute_code", `{"code":"1","env":{"A":1}}`, "invalid_argument", []string{`env["A"]`}},
		{"execute_code", `{"code":"1","backend":"moon"}`, "invalid_argument", []string{"backend", "process, docker"}},
		{"execute_code", `{"code":"1","language":"cobol"}`, "unsupported_language", []string{"cobol"}},
		{"execute_code", `{"code":"1","session_id":"a b"}`, "invalid_session_id", []string{"a b"}},
		{"execute_code", `{"code":"1","session_id":""}`, "invalid_session_id", nil},
		{"execute_code", `{"code":"1","session_id":7}`, "invalid_argument", []string{"session_id is a number"}},
		{"execute_code", `{"code":"1","packages":[1]}`, "invalid_argument", []string{"packages"}},
		{"install_package", `{"language":"shell","packages":["six"]}`, "invalid_argument", []string{"language"}},
		{"install_package", `{"language":"python","packages":"six"}`, "invalid_argument", []string{"packages"}},
		{"install_package", `{"language":"python","packages":["six"],"session_id":"a b"}`, "invalid_session_id", []string{"a b"}},
		{"execute_code", `{"code":"1","Code":"2"}`, "invalid_argument", []string{`"Code"`}},
		{"execute_code", `{"code":"1","namespace":"other"}`, "access_denied", []string{"other"}},
		{"execute_code", `{"code":"1","namespace":"../x"}`, "invalid_argument", []string{"namespace"}},
		{"execute_code", `{"code":"1","namespace":"default\u0000"}`, "invalid_argument", []string{"namespace"}},
		{"execute_code", `{"code":"1","namespace":7}`, "invalid_argument", []string{"namespace"}},
		{"execute_code", `[1]`, "invalid_argument", []string{"no object"}},
		{"get_artifacts", `{"request_id":"x","wait_seconds":46}`, "invalid_argument", []string{"wait_seconds", "45"}},
		{"get_artifacts", `{"request_id":"00000000-0000-4000-8000-000000000000"}`, "request_not_found", []string{"0000"}},
		{"get_artifacts", `{"request_id":"../x"}`, "request_not_found", nil},
		{"list_runtimes", `{"x":1}`, "invalid_argument", []string{"takes none"}},
	} {
		res := p.call(c.tool, nil2raw(c.args))
		body := structured(res)
		if res["isError"] != true || body["error"] != c.code {
			t.Errorf("%s %s: got %v, want error %s", c.tool, c.args, res, c.code)
			continue
		}
		for _, w := range c.words {
			if text, _ := body["message"].(string); !strings.Contains(text, w) {
				t.Errorf("%s %s: got message %q, want %q in it", c.tool, c.args, text, w)
			}
		}
		if hint, _ := body["hint"].(string); hint == "" {
			t.Errorf("%s %s: got no hint, want one", c.tool, c.args)
		}
		sameText(t, c.args, res)
	}
}

// nil2raw lets call send arguments exactly as they are written.
func nil2raw(args string) map[string]any {
	return map[string]any{rawArguments: json.RawMessage(args)}
}

const rawArguments = "\x00raw"

// TestHintsOfLanguages: the hint of a wrong language names those that the tool takes.
func TestHintsOfLanguages(t *testing.T) {
	p := legacy(t, newFake())
	for tool, c := range map[string]struct {
		args map[string]any
		want string
	}{
		"install_package": {map[string]any{"packages": []string{"six"}}, "use python or node"},
		"execute_code":    {map[string]any{"code": "1"}, "use one of python, node, shell"},
	} {
		c.args["language"] = "ruby"
		m := p.request("tools/call", map[string]any{"name": tool, "arguments": c.args})
		res, _ := m["result"].(map[string]any)
		body, _ := res["structuredContent"].(map[string]any)
		if body["error"] != "unsupported_language" || body["hint"] != c.want {
			t.Errorf("%s: got %v, want unsupported_language and the hint %q", tool, m, c.want)
		}
	}
}

func TestArgumentsReachTheEngine(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	p.call("execute_code", map[string]any{
		"code": "c", "language": "node", "timeout_seconds": 5.0, "stdin": "in", "env": map[string]any{"A": "b"}, "max_ram_mb": 64,
		"max_cpu_cores": 0.5, "max_processes": 3, "max_output_bytes": 1000, "backend": "docker", "namespace": "default", "packages": []any{"left-pad"},
	})
	got := f.last(t)
	want := sandboxmcp.Request{
		Code: "c", Language: sandboxmcp.Node, Stdin: []byte("in"), Env: map[string]string{"A": "b"}, Packages: []string{"left-pad"},
		Limits:  sandboxmcp.Limits{MaxRAMMB: 64, MaxCPUCores: 0.5, TimeoutSeconds: 5, MaxProcesses: 3, MaxOutputBytes: 1000},
		Backend: "docker", Display: sandboxmcp.DisplayStdout,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
	for name, want := range map[string]sandboxmcp.Language{"bash": "shell", "JavaScript": "node", "PY": "python", "Shell": "shell"} {
		if res := p.call("execute_code", map[string]any{"code": "c", "language": name}); res["isError"] == true || f.last(t).Language != want {
			t.Errorf("language %s: got %v, want that of %s", name, structured(res), want)
		}
	}
	p.execute("bare")
	if got := f.last(t).Limits; got != (sandboxmcp.Limits{}) {
		t.Errorf("limits of a call without any = %+v, want the engine's defaults", got)
	}
	res := p.call("execute_code", map[string]any{"code": "c", "background": true, "namespace": "team"})
	if got, want := structured(res)["status"], "running"; got != want {
		t.Errorf("status in the background = %v, want %v", got, want)
	}
	p.call("get_artifacts", map[string]any{"request_id": runID, "wait_seconds": 1.5, "cancel": true, "include_content": false})
	if d := cmp.Diff(sandboxmcp.Lookup{RequestID: runID, Wait: 1500 * time.Millisecond, Cancel: true}, f.lookups[len(f.lookups)-1]); d != "" {
		t.Errorf("lookup (-want +got):\n%s", d)
	}
}

func TestWriteDocs(t *testing.T) {
	var b strings.Builder
	if err := server.WriteDocs(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## execute_code", "| `timeout_seconds` | integer ≥ 1 | `60` |", "## sandbox_stats", "| `request_id` | string | required |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got a document without %q, want it", want)
		}
	}
}

package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// listed returns the tools of a server by name.
func listed(t *testing.T, f *fake) map[string]map[string]any {
	t.Helper()
	m := legacy(t, f).request("tools/list", map[string]any{})
	res, _ := m["result"].(map[string]any)
	list, _ := res["tools"].([]any)
	all := map[string]map[string]any{}
	for _, one := range list {
		if tool, ok := one.(map[string]any); ok {
			all[fmt.Sprint(tool["name"])] = tool
		}
	}
	return all
}

func TestChosenTools(t *testing.T) {
	every := slices.Collect(maps.Keys(listed(t, newFake())))
	for _, c := range []struct {
		only     []string
		readOnly bool
		want     string
	}{
		{[]string{"web"}, false, "browser_fetch fetch_webpage web_search"},
		{[]string{"execute_code", "security"}, false, "audit_execution execute_code request_egress"},
		{[]string{"execution"}, true, "get_artifacts validate_code"},
		{nil, true, "audit_execution get_artifacts host_file_list host_file_read inspect_state list_host_access list_runtimes sandbox_list_artifacts sandbox_read_artifact sandbox_stats validate_code"},
	} {
		f := newFake()
		f.config.Only, f.config.ReadOnly = c.only, c.readOnly
		got := listed(t, f)
		if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != c.want {
			t.Errorf("%v, read-only %v: got %s, want %s", c.only, c.readOnly, names, c.want)
		}
		for name, tool := range got {
			if hints, _ := tool["annotations"].(map[string]any); c.readOnly && hints["readOnlyHint"] != true {
				t.Errorf("got %s in a read-only list, want only tools that change nothing", name)
			}
		}
		missing := slices.DeleteFunc(slices.Clone(every), func(n string) bool { return got[n] != nil })
		named := regexp.MustCompile(`\b(` + strings.Join(missing, "|") + `)\b`)
		p := dial(t, f)
		texts := map[string]any{"initialize": p.hello("2025-06-18"), "list": got}
		for where, v := range texts {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if found := named.FindString(string(text)); found != "" {
				t.Errorf("%v: %s names %s, which is not offered", c.only, where, found)
			}
		}
		m := p.request("tools/call", map[string]any{"name": missing[0], "arguments": map[string]any{}})
		if errorCode(m) != -32602 {
			t.Errorf("a call of %s: got %v, want that the tool is unknown", missing[0], m)
		}
	}
}

// TestRequestsSayWhatTheReaderLacks: the engine learns which tools the reader of a note lacks, so
// that the note does not name them.
func TestRequestsSayWhatTheReaderLacks(t *testing.T) {
	for _, tool := range []string{"execute_code", "sandbox_run_python"} {
		for _, only := range [][]string{nil, {tool}} {
			f := newFake()
			f.config.Only = only
			legacy(t, f).request("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"code": "x"}})
			if len(f.requests) != 1 {
				t.Fatalf("%s: got %d requests, want one", tool, len(f.requests))
			}
			lacks := f.requests[0].Unoffered
			if got, want := slices.Contains(lacks, "request_egress"), only != nil; got != want || slices.Contains(lacks, tool) {
				t.Errorf("%s of %v: got %v as lacking, want request_egress in it: %v", tool, only, lacks, want)
			}
		}
	}
}

// TestSharedCachesKeepOnlyWhatAllClientsHave: lists and contents that may depend on the caller are
// private.
func TestSharedCachesKeepOnlyWhatAllClientsHave(t *testing.T) {
	p := openWeb(t, newFake()).modernPeer("ka")
	for method, want := range map[string]string{
		"server/discover": "public", "tools/list": "public",
		"resources/list": "private", "resources/templates/list": "private", "prompts/list": "private",
	} {
		m := p.request(method, map[string]any{})
		res, _ := m["result"].(map[string]any)
		if got := res["cacheScope"]; got != want {
			t.Errorf("%s: got cacheScope %v, want %s: %v", method, got, want, m["error"])
		}
	}
}

// TestEveryToolIsInAGroup: the groups together are all tools.
func TestEveryToolIsInAGroup(t *testing.T) {
	f := newFake()
	f.config.Only = []string{"execution", "sessions", "monitoring", "security", "web", "host", "files"}
	if got, want := len(listed(t, f)), len(listed(t, newFake())); got != want {
		t.Errorf("got %d tools in all groups, want %d", got, want)
	}
	if err := server.CheckTools(append(f.config.Only, "execute_code", "host_exec")); err != nil {
		t.Errorf("got %v, want every group and tool known", err)
	}
	if err := server.CheckTools([]string{"web", "webs"}); err == nil || !strings.Contains(err.Error(), `"webs"`) {
		t.Errorf("got %v, want that webs is unknown", err)
	}
}

func TestPrompt(t *testing.T) {
	p := legacy(t, newFake())
	m := p.request("prompts/list", map[string]any{})
	res, _ := m["result"].(map[string]any)
	if list, _ := res["prompts"].([]any); len(list) != 1 {
		t.Fatalf("got %v, want one prompt", m)
	}
	m = p.request("prompts/get", map[string]any{"name": "analyze_data", "arguments": map[string]any{"question": "Which month sold most?", "data": "sales.csv", "session_id": "work"}})
	text := fmt.Sprint(m["result"])
	for _, want := range []string{"Which month sold most?", "sales.csv", "session_id work", "execute_code"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %q in it", text, want)
		}
	}
	for name, args := range map[string]map[string]any{
		"no question": {}, "an unknown argument": {"question": "x", "colour": "red"}, "a bad session": {"question": "x", "session_id": "a b"}, "a long text": {"question": strings.Repeat("x", 5000)},
	} {
		if m = p.request("prompts/get", map[string]any{"name": "analyze_data", "arguments": args}); errorCode(m) != -32602 {
			t.Errorf("%s: got %v, want invalid params", name, m)
		}
	}
	f := newFake()
	f.config.Tools = server.FiveTools
	if m = legacy(t, f).request("prompts/list", map[string]any{}); errorCode(m) != -32601 {
		t.Errorf("the five tools: got %v, want no prompts", m)
	}
}

func TestCompletion(t *testing.T) {
	f := newFake()
	f.put("work", map[string]string{"a.csv": "1", "b.csv": "2"})
	f.put("other", nil)
	p := legacy(t, f)
	complete := func(ref map[string]any, argument, value string, given map[string]any) string {
		t.Helper()
		m := p.request("completion/complete", map[string]any{"ref": ref, "argument": map[string]any{"name": argument, "value": value}, "context": map[string]any{"arguments": given}})
		res, _ := m["result"].(map[string]any)
		c, _ := res["completion"].(map[string]any)
		if c == nil {
			return fmt.Sprint(m["error"])
		}
		return fmt.Sprint(c["values"])
	}
	run, file := map[string]any{"type": "ref/resource", "uri": "run://{request_id}/{+part}"}, map[string]any{"type": "ref/resource", "uri": "artifact://{id}/{+path}"}
	prompt := map[string]any{"type": "ref/prompt", "name": "analyze_data"}
	for _, c := range []struct{ got, want string }{
		{complete(run, "part", "std", nil), "[stdout stderr]"},
		{complete(run, "part", "x", nil), "[]"},
		{complete(prompt, "session_id", "w", nil), "[work]"},
		{complete(prompt, "question", "", nil), "[]"},
		{complete(file, "path", "", map[string]any{"id": "../x"}), "[]"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	if got := complete(map[string]any{"type": "ref/prompt", "name": "none"}, "x", "", nil); !strings.Contains(got, "-32602") {
		t.Errorf("an unknown prompt: got %s, want invalid params", got)
	}
}

// TestSubscriptionsToOutput: a client is told when the output of a running request has grown
// and when the request has ended, in both eras.
func TestSubscriptionsToOutput(t *testing.T) {
	f := newFake()
	f.soFar = "a\n"
	p := legacy(t, f)
	p.request("resources/subscribe", map[string]any{"uri": "run://" + runID + "/stdout"})
	p.request("resources/subscribe", map[string]any{"uri": "run://" + runID + "/result"})
	modern := openWeb(t, f).modernPeer("ka")
	resp := modern.begin(t.Context(), "subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": []string{"run://" + runID + "/stdout"}}})
	defer resp.Body.Close()
	f.mu.Lock()
	f.soFar = "a\nb\n"
	f.mu.Unlock()
	updated := func(m map[string]any) string {
		params, _ := m["params"].(map[string]any)
		return fmt.Sprint(m["method"], " ", params["uri"])
	}
	if got, want := updated(p.read()), "notifications/resources/updated run://"+runID+"/stdout"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f.mu.Lock()
	f.soFar = ""
	f.mu.Unlock()
	for got := ""; !strings.HasSuffix(got, "/result"); {
		got = updated(p.read())
	}
	p.request("resources/subscribe", map[string]any{"uri": "test://anything"})
	p.request("resources/unsubscribe", map[string]any{"uri": "test://anything"})
	done := time.AfterFunc(20*time.Second, func() { _ = resp.Body.Close() })
	defer done.Stop()
	for events := bufio.NewReader(resp.Body); ; {
		m, err := nextMessage(events)
		if err != nil {
			t.Fatalf("modern: got %v, want the update", err)
		}
		if updated(m) == "notifications/resources/updated run://"+runID+"/stdout" {
			break
		}
	}
}

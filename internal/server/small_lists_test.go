package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestSmallLists: a list in a small answer has what a model needs: no walls, no hashes, nothing
// that is empty.
func TestSmallLists(t *testing.T) {
	f := newFake()
	f.config.Small = true
	f.config.Link = func(_ sandboxmcp.Namespace, id, path string, _ int64) string { return "http://h/" + id + path }
	f.put("s", map[string]string{"d.csv": "1,2\n"})
	p := legacy(t, f)
	for _, c := range []struct {
		tool   string
		args   map[string]any
		most   int
		want   []string
		absent []string
	}{
		{"inspect_state", nil, 450, []string{`"id":"s"`, `"limits":{`, `"vault_keys":[]`}, []string{"walls", "isolation", `"env"`, `"files"`, "created_at"}},
		{"inspect_state", map[string]any{"session_id": "s"}, 600, []string{`"path":"/mnt/data/d.csv"`, "http://h/s/mnt/data/d.csv"}, []string{"sha256"}},
		{"sandbox_list_artifacts", map[string]any{"session_id": "s"}, 200, []string{`"filename":"d.csv"`, `"size_bytes":4`, `"mime_type":"text/csv"`, `"download_url":"http`}, []string{"sha256", "more_artifacts"}},
		{"list_runtimes", nil, 500, []string{`"language":"python"`, `"tier":"L2"`}, []string{"walls", "kernel", "policy_sha256", `"path"`}},
		{"create_session", nil, 400, []string{`"id":"` + string(made), `"session_id":"` + string(made), `"resource_limits":{`}, []string{"walls", "owner"}},
	} {
		text, err := json.Marshal(structured(p.call(c.tool, c.args)))
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > c.most {
			t.Errorf("%s %v: got %d bytes, want at most %d: %s", c.tool, c.args, len(text), c.most, text)
		}
		for _, want := range c.want {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s %v: want %s in %s", c.tool, c.args, want, text)
			}
		}
		for _, absent := range c.absent {
			if strings.Contains(string(text), absent) {
				t.Errorf("%s %v: want no %s in %s", c.tool, c.args, absent, text)
			}
		}
	}
}

// TestSmallListsAreBounded: of a long list the beginning is shown, and how many entries are not.
func TestSmallListsAreBounded(t *testing.T) {
	f := newFake()
	f.config.Small = true
	files := map[string]string{}
	for i := range 1000 {
		files[fmt.Sprintf("file-%04d.csv", i)] = "1"
	}
	f.put("s", files)
	f.moreFiles = true
	p := legacy(t, f)
	for tool, field := range map[string]string{"sandbox_list_artifacts": "artifacts", "inspect_state": "files"} {
		body := structured(p.call(tool, map[string]any{"session_id": "s"}))
		shown, _ := body[field].([]any)
		more, _ := body["more_"+field].(float64)
		if len(shown) < 10 || len(shown)+int(more) != 1000 || body["more_"+field+"_at_least"] != true {
			t.Errorf("%s: got %d files and %v more, at least %v; want 1000 in all, and that there are more", tool, len(shown), more, body["more_"+field+"_at_least"])
		}
		if text, err := json.Marshal(body); err != nil || len(text) > 4_000 {
			t.Errorf("%s: got %d characters, want at most 4,000", tool, len(text))
		}
	}
}

package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

func TestVerifyReceipt(t *testing.T) {
	state, other := t.TempDir(), t.TempDir()
	hash := strings.Repeat("ab", 32)
	key, err := sign.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sign.Open(other); err != nil {
		t.Fatal(err)
	}
	receipt, err := key.Receipt(sign.Statement{Predicate: sandboxmcp.ReceiptPredicate{
		RequestID: "the-request", Namespace: "default", Language: sandboxmcp.Python, Status: sandboxmcp.StatusCompleted,
		CodeSHA256: hash, StdoutSHA256: hash, StderrSHA256: hash,
	}})
	if err != nil {
		t.Fatal(err)
	}
	changed := receipt
	changed.Payload = "A" + changed.Payload[1:]
	file := func(name string, v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		p := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := file("good", receipt)
	for _, c := range []struct {
		name   string
		args   []string
		status int
		stdout string
	}{
		{"receipt", []string{good}, 0, "VERIFIED\n"},
		{"in an object", []string{file("result", map[string]any{"receipt": receipt})}, 0, "VERIFIED\n"},
		{"with a key", []string{good, "--key", filepath.Join(state, sign.PublicFile)}, 0, "the-request"},
		{"another key", []string{good, "--key", filepath.Join(other, sign.PublicFile)}, 1, "MISMATCH\n"},
		{"changed", []string{file("changed", changed)}, 1, "MISMATCH\n"},
		{"nothing", []string{file("nothing", map[string]any{})}, 2, ""},
		{"a result beside it", []string{file("beside", map[string]any{"receipt": receipt, "result": map[string]any{"stdout": "other"}})}, 2, ""},
		{"an unknown member", []string{file("unknown", map[string]any{"receipt": receipt, "output": "other"})}, 2, ""},
		{"an unknown member of a file", []string{file("of a file", map[string]any{"receipt": receipt, "artifacts": []any{map[string]any{"content": "other"}}})}, 2, ""},
		{"what is not signed", []string{file("unsigned", map[string]any{"receipt": receipt, "metadata": map[string]any{"x": 1}, "note": "", "results": []any{}})}, 0, "not signed  metadata\n"},
		{"not there", []string{"/none"}, 5, ""},
		{"json", []string{good, "--json"}, 0, `"verified": true`},
	} {
		got := (&fake{}).cli(t.Context(), t, []string{"SANDBOXMCP_STATE_DIR=" + state}, append([]string{"verify", "--receipt"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stdout, c.stdout) || c.status != 0 && strings.Contains(got.stdout, "VERIFIED") {
			t.Errorf("%s: got %+v, want %d and %q", c.name, got, c.status, c.stdout)
		}
	}
}

// TestVerifyResult: whatever is changed in a result beside its receipt is named.
func TestVerifyResult(t *testing.T) {
	state := t.TempDir()
	key, err := sign.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	sum := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	isolation := &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2, Backend: "process", Walls: []string{"seccomp"}}
	receipt, err := key.Receipt(sign.Statement{Predicate: sandboxmcp.ReceiptPredicate{
		RequestID: "r", Namespace: "default", Language: sandboxmcp.Python, Status: sandboxmcp.StatusFailed, ExitCode: 3,
		CodeSHA256: sum("code"), StdoutSHA256: sum("out <&>\n"), StderrSHA256: sum(""), Isolation: isolation, Network: &sandboxmcp.Network{},
		Artifacts: []sandboxmcp.ReceiptArtifact{{Path: "/mnt/data/a.txt", SizeBytes: 1, SHA256: sum("A")}, {Path: "/mnt/data/d/b", SizeBytes: 1, SHA256: sum("B")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	res := sandboxmcp.Result{
		RequestID: "r", Namespace: "default", Language: sandboxmcp.Python, Status: sandboxmcp.StatusFailed, ExitCode: 3, Stdout: "out <&>\n",
		Isolation: isolation, Receipt: &receipt, Network: sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}},
		Artifacts: []sandboxmcp.Artifact{
			{Name: "a.txt", Path: "/mnt/data/a.txt", SizeBytes: 1, SHA256: sum("A"), ContentB64: []byte("A")},
			{Name: "d/b", Path: "/mnt/data/d/b", SizeBytes: 1, SHA256: sum("B")},
		},
	}
	first := func(doc map[string]any) map[string]any { return doc["artifacts"].([]any)[0].(map[string]any) }
	for _, c := range []struct {
		name   string
		change func(doc map[string]any)
		want   string // what is named; empty: it verifies
	}{
		{"nothing", func(map[string]any) {}, ""},
		{"what is not signed", func(d map[string]any) { d["metadata"], d["duration_ms"] = map[string]any{"x": 1}, 7 }, ""},
		{"manifest", func(d map[string]any) { d["manifest"] = map[string]string{"a.txt": sum("A"), "d/b": sum("B")} }, ""},
		{"another manifest", func(d map[string]any) { d["manifest"] = map[string]string{"a.txt": sum("B"), "d/b": sum("B")} }, "manifest"},
		{"stdout", func(d map[string]any) { d["stdout"] = "other" }, "stdout"},
		{"stdout is no text", func(d map[string]any) { d["stdout"] = nil }, "stdout"},
		{"stdout is shortened", func(d map[string]any) { d["stdout"], d["stdout_uri"] = "o", "run://r/stdout" }, "stdout (shortened in this document)"},
		{"stderr", func(d map[string]any) { d["stderr"] = "other" }, "stderr"},
		{"status", func(d map[string]any) { d["status"], d["success"] = "completed", true }, "status, success"},
		{"exit code", func(d map[string]any) { d["exit_code"] = 0 }, "exit_code"},
		{"request", func(d map[string]any) { d["request_id"] = "s" }, "request_id"},
		{"isolation", func(d map[string]any) { d["isolation"].(map[string]any)["tier"] = "L3" }, "isolation"},
		{"network", func(d map[string]any) { d["network"] = map[string]any{"allowed": []string{"a"}} }, "network"},
		{"content", func(d map[string]any) { first(d)["content_b64"] = "Qg==" }, `artifact "a.txt" (content)`},
		{"text", func(d map[string]any) { first(d)["text"] = "A" }, ""},
		{"another text", func(d map[string]any) { first(d)["text"] = "B" }, `artifact "a.txt" (content)`},
		{"content is no base64", func(d map[string]any) { first(d)["content_b64"] = "!" }, `artifact "a.txt" (content)`},
		{"content and hash", func(d map[string]any) { first(d)["content_b64"], first(d)["sha256"] = "Qg==", sum("B") }, `artifact "a.txt" (sha256)`},
		{"size", func(d map[string]any) { first(d)["size_bytes"] = 2 }, `artifact "a.txt" (size_bytes)`},
		{"name", func(d map[string]any) { first(d)["name"] = "c" }, `artifact "c" (not in the receipt), artifact "a.txt" (only in the receipt)`},
		{"one file less", func(d map[string]any) { d["artifacts"] = d["artifacts"].([]any)[:1] }, `artifact "d/b" (only in the receipt)`},
		{"one file twice", func(d map[string]any) { d["artifacts"] = append(d["artifacts"].([]any), first(d)) }, `artifact "a.txt" (not in the receipt)`},
		{"no list", func(d map[string]any) { d["artifacts"] = "none" }, "artifacts"},
	} {
		text, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err = json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		c.change(doc)
		if text, err = json.Marshal(doc); err != nil {
			t.Fatal(err)
		}
		p := filepath.Join(t.TempDir(), "result.json")
		if err = os.WriteFile(p, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got := (&fake{}).cli(t.Context(), t, []string{"SANDBOXMCP_STATE_DIR=" + state}, "verify", "--receipt", p)
		if c.want == "" {
			if got.status != 0 || !strings.HasPrefix(got.stdout, "VERIFIED\n") {
				t.Errorf("%s: got %+v, want VERIFIED", c.name, got)
			}
			continue
		}
		if got.status != 1 || got.stdout != "MISMATCH\n" || !strings.HasSuffix(got.stderr, "differs from it in: "+c.want+"\n") {
			t.Errorf("%s: got %+v, want MISMATCH and %s", c.name, got, c.want)
		}
	}
}

// TestWallsAreNamed: a sandbox without walls has "none", and not an empty text.
func TestWallsAreNamed(t *testing.T) {
	for _, c := range []struct {
		walls []string
		want  string
	}{{nil, "none"}, {[]string{}, "none"}, {[]string{"seccomp", "landlock"}, "seccomp, landlock"}} {
		var out bytes.Buffer
		a := &call{App: &app.App{Stdout: &out, Stderr: &out}}
		a.showPredicate(sandboxmcp.ReceiptPredicate{Isolation: &sandboxmcp.Isolation{Tier: sandboxmcp.TierL0, Backend: "b", Walls: c.walls}}, nil)
		if want := "L0 on b: " + c.want + "\n"; !strings.Contains(out.String(), want) {
			t.Errorf("walls %q: got %q, want %q in it", c.walls, out.String(), want)
		}
	}
}

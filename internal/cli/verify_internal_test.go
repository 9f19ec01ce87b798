package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
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
		{"result", []string{file("result", sandboxmcp.Result{Receipt: &receipt})}, 0, "VERIFIED\n"},
		{"with a key", []string{good, "--key", filepath.Join(state, sign.PublicFile)}, 0, "the-request"},
		{"another key", []string{good, "--key", filepath.Join(other, sign.PublicFile)}, 1, "MISMATCH\n"},
		{"changed", []string{file("changed", changed)}, 1, "MISMATCH\n"},
		{"nothing", []string{file("nothing", map[string]any{})}, 2, ""},
		{"not there", []string{"/none"}, 5, ""},
		{"json", []string{good, "--json"}, 0, `"verified": true`},
	} {
		got := (&fake{}).cli(t.Context(), t, []string{"SANDBOXMCP_STATE_DIR=" + state}, append([]string{"verify", "--receipt"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stdout, c.stdout) || c.status != 0 && strings.Contains(got.stdout, "VERIFIED") {
			t.Errorf("%s: got %+v, want %d and %q", c.name, got, c.status, c.stdout)
		}
	}
}

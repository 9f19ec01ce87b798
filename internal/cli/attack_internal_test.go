package cli

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestAttackThatIsNotRefused: a program that reports nothing, or a success, is not told as
// refused, and the command fails.
func TestAttackThatIsNotRefused(t *testing.T) {
	for name, stdout := range map[string]string{
		"silent":  "",
		"success": `{"probe": "host file", "report": "it read: canary"}` + "\n",
		"other":   `{"probe": "host file", "report": "ENOENT"}` + "\n", // all other probes are silent
	} {
		f := &fake{res: sandboxmcp.Result{Status: sandboxmcp.StatusCompleted, Stdout: stdout, Isolation: &sandboxmcp.Isolation{Tier: sandboxmcp.TierL3, Backend: "process"}}}
		got := f.cli(t.Context(), t, []string{"HOME=" + t.TempDir()}, "doctor", "--attack")
		if got.status != 1 || !strings.Contains(got.stdout, "OPEN") || strings.Contains(got.stdout, "28 of 28") {
			t.Errorf("%s: got %+v, want exit 1 and an open one", name, got)
		}
		if name != "other" && strings.Contains(got.stdout, "held") {
			t.Errorf("%s: got %q, want none held", name, got.stdout)
		}
		if !f.got.NoSecrets {
			t.Errorf("%s: the probes get secrets", name)
		}
	}
	f := &fake{err: sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "no user namespaces")}
	if got := f.cli(t.Context(), t, []string{"HOME=" + t.TempDir()}, "doctor", "--attack", "--json"); got.status != 9 || !strings.Contains(got.stdout, "isolation_unavailable") {
		t.Errorf("no sandbox: got %+v, want isolation_unavailable", got)
	}
}

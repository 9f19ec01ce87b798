package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestCrowdsKeepTheirGroups: however code is run, a process with children cannot leave their process group if the
// sandbox may have many tasks.
func TestCrowdsKeepTheirGroups(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
	leaves := testkit.Hostile(t, "leaves-its-children.py")
	few, many := sandboxmcp.Limits{MaxProcesses: 4}, sandboxmcp.Limits{MaxProcesses: 65}
	for range 3 { // executed, then forked, then ready
		for limits, want := range map[sandboxmcp.Limits]string{few: "changed", many: "refused"} {
			res := execute(t, e, sandboxmcp.Request{Code: leaves, Language: sandboxmcp.Python, Limits: limits})
			if got := strings.TrimSpace(res.Stdout); got != want {
				t.Errorf("with %d processes: got %q, want %s; status %s, stderr %q", limits.MaxProcesses, got, want, res.Status, res.Stderr)
			}
		}
	}
	res := execute(t, e, sandboxmcp.Request{Code: shellCode(leaves), Language: sandboxmcp.Shell, Limits: many})
	if got := strings.TrimSpace(res.Stdout); got != "refused" {
		t.Errorf("shell: got %q, want refused; stderr %q", got, res.Stderr)
	}
	res = execute(t, e, in(create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python, Limits: many}), leaves))
	if got := strings.TrimSpace(res.Stdout); got != "refused" {
		t.Errorf("session: got %q, want refused; stderr %q", got, res.Stderr)
	}
}

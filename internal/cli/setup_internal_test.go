package cli

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// TestSetupSaysWhichSessionsHaveASet: those that were made before a set do not have it.
func TestSetupSaysWhichSessionsHaveASet(t *testing.T) {
	const line = "\nsessions that are live now do not have it; new ones do"
	for _, already := range []bool{false, true} {
		if got := setupSummary(environment.Report{Already: already}); strings.HasSuffix(got, line) == already {
			t.Errorf("already installed %t: got %q", already, got)
		}
	}
}

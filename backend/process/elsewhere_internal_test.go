package process

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestOtherSystemsAreRefusedWithAHint: what a run answers on macOS and Windows.
func TestOtherSystemsAreRefusedWithAHint(t *testing.T) {
	for _, system := range []string{"darwin", "windows"} {
		err := elsewhere(system)
		if got, want := sandboxmcp.CodeOf(err), sandboxmcp.CodeIsolationUnavailable; got != want {
			t.Errorf("%s: got code %s, want %s", system, got, want)
		}
		if !strings.Contains(err.Message, system) || !strings.Contains(err.Hint, "Docker") {
			t.Errorf("got %q with the hint %q, want %s in the first and Docker in the second", err.Message, err.Hint, system)
		}
	}
}

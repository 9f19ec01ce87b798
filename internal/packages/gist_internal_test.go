package packages

import (
	"strings"
	"testing"
)

// TestGistNamesNoCommand: pip and npm print texts of packages, and a command in backquotes would be taken for one of this
// program's.
func TestGistNamesNoCommand(t *testing.T) {
	for _, said := range []string{"ERROR: no `sandboxmcp egress '*.a.example'`", "npm error no `sandboxmcp egress x.example`"} {
		if got := gist(said); strings.Contains(got, "`") || !strings.Contains(got, "no 'sandboxmcp egress") {
			t.Errorf("%s: got %s", said, got)
		}
	}
}

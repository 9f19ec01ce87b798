package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestStateIsNeverShown: an interpreter that needs a directory which holds the state directory
// is refused, and no sandbox is built for it.
func TestStateIsNeverShown(t *testing.T) {
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "bash"), []byte("\x7fELF not really"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		state string
		want  sandboxmcp.Code
	}{
		"Below":  {filepath.Join(tools, "deep", "state"), sandboxmcp.CodeIsolationUnavailable},
		"Beside": {tools + "-state", ""}, // the same letters are not the same directory
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { _ = os.RemoveAll(c.state) })
			f := &fake{search: tools}
			e := open(t, f, at(c.state))
			_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("x"))
			if c.want == "" {
				if err != nil {
					t.Fatalf("Execute: got %v, want a result", err)
				}
				return
			}
			if bad := asCode(t, err, c.want); !strings.Contains(bad.Message, tools) || bad.Hint == "" {
				t.Errorf("got message %q and hint %q, want the directory and what to do", bad.Message, bad.Hint)
			}
			if n, _ := f.starts(); n != 0 || len(f.seen()) != 0 {
				t.Errorf("got %d programs started, calls of the backend %v; want none", n, f.seen())
			}
		})
	}
}

package engine_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestTheWorkspaceDoesNotShowTheStateByAMount: two volumes of a container may come from one directory, and a mount may show the state
// once more.
func TestTheWorkspaceDoesNotShowTheStateByAMount(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	top := t.TempDir()
	for _, dir := range []string{"/data/state/run", "/data/other", "/state", "/whole", "/part", "/outer/inner", "/fine"} {
		if err := os.MkdirAll(top+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for at, from := range map[string]string{"/state": "/data/state", "/whole": "/data", "/part": "/data/state/run", "/outer/inner": "/data/state", "/fine": "/data/other"} {
		if err := syscall.Mount(top+from, top+at, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(top+at, syscall.MNT_DETACH) })
	}
	for workspace, want := range map[string]string{
		"/whole": "the state directory is in it", "/data": "the state directory is in it", "/outer": "the state directory is in it", "/part": "the state directory is in it", "/fine": "",
	} {
		for _, mode := range []string{"ro", "rw"} {
			values := map[string]any{"workspace_path": top + workspace, "workspace_mode": mode}
			e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, Env: []string{"SANDBOXMCP_STATE_DIR=" + top + "/state"}}})
			switch {
			case err == nil:
				_ = e.Close()
				if want != "" {
					t.Errorf("%s (%s): got no error, want %q", workspace, mode, want)
				}
			case want == "" || sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(err.Error(), want):
				t.Errorf("%s (%s): got %v, want %q", workspace, mode, err, want)
			}
		}
	}
}

package app_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestDoctorTellsThatAnInterpreterCannotBeExecuted: the server can execute the first interpreter on the PATH, and its
// sandboxes cannot.
func TestDoctorTellsThatAnInterpreterCannotBeExecuted(t *testing.T) {
	_, _ = openEngine(t) // sandboxes can be made here
	python, err := exec.LookPath("/usr/bin/python3")
	testkit.Need(t, "python", err == nil, "no /usr/bin/python3")
	dir, err := os.MkdirTemp("/tmp", "sandboxmcp-test-") //nolint:usetesting // sandboxes have a /tmp of their own; t.TempDir may be elsewhere
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(python)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "python3"), program, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(), "SANDBOXMCP_STATE_DIR=" + filepath.Join(t.TempDir(), "state")}
	c, err := config.Load(config.Sources{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	o := app.Options{Config: c, Options: engine.Options{Settings: engine.Settings{Env: env}, Env: env}}
	for _, k := range app.New(o.Env, nil, io.Discard, io.Discard).Diagnose(t.Context(), o) {
		if k.Name == "python" && (k.OK || k.Needed || k.Fix == "" || !strings.Contains(k.Detail, "no program could be started")) {
			t.Errorf("an interpreter that cannot be executed: got %+v, want it to be missing", k)
		}
		if k.Name == "shell" && !k.OK {
			t.Errorf("the shell, which can: got %+v, want it ok", k)
		}
	}
}

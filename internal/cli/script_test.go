package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxmcp/sandboxmcp/internal/cli"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"sandboxmcp": func() {
			os.Exit(cli.Main(context.Background(), cli.Own()))
		},
	})
}

// canRun reports whether this machine can build a sandbox, as doctor says.
var canRun = sync.OnceValue(func() bool {
	var out bytes.Buffer
	home, err := os.MkdirTemp("", "doctor")
	if err != nil {
		return false
	}
	defer func() { _ = os.RemoveAll(home) }()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	return cli.Main(context.Background(), cli.Process{Args: []string{"sandboxmcp", "doctor"}, Env: env, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}) == 0
})

func TestScript(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("got %d scripts and %v", len(scripts), err)
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir+"/home")
			e.Setenv("SANDBOXMCP_STATE_DIR", e.WorkDir+"/state")
			e.Setenv("DOCKER_HOST", "unix://"+e.WorkDir+"/none.sock")
			return os.Mkdir(e.WorkDir+"/home", 0o700)
		},
		Condition: func(cond string) (bool, error) {
			if cond != "sandbox" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			if !canRun() && (testkit.Demanded("userns") || testkit.Demanded("root")) {
				return false, fmt.Errorf("a sandbox is demanded by %s and doctor says that there is none", testkit.MustRun)
			}
			return canRun(), nil
		},
	})
}

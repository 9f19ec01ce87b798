package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
		t.Fatalf("got %d scripts and %v, want some", len(scripts), err)
	}
	elsewhere := ""
	if os.Getenv("ENGINE_RUNTIMES") != "" {
		elsewhere = testkit.OverTCP(t, os.Getenv("DOCKER_HOST"))
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir+"/home")
			e.Setenv("SANDBOXMCP_STATE_DIR", e.WorkDir+"/state")
			e.Setenv("DOCKER_HOST", "unix://"+e.WorkDir+"/none.sock")
			e.Setenv("ENGINE", os.Getenv("DOCKER_HOST"))
			e.Setenv("ENGINE_RUNTIMES", os.Getenv("ENGINE_RUNTIMES"))
			e.Setenv("ENGINE_TCP", elsewhere)
			return os.Mkdir(e.WorkDir+"/home", 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"wheels": wheels},
		Condition: func(cond string) (bool, error) {
			if cond == "pip" {
				err := exec.CommandContext(t.Context(), "python3", "-m", "pip", "--version").Run()
				if err != nil && testkit.Demanded("pip") {
					return false, fmt.Errorf("pip is demanded by %s: %w", testkit.MustRun, err)
				}
				return err == nil, nil
			}
			if cond == "docker" || cond == "runsc" { // an engine of our own, see scripts/engine.sh
				runtimes := os.Getenv("ENGINE_RUNTIMES")
				there := runtimes != "" && (cond == "docker" || slices.Contains(strings.Split(runtimes, ","), cond))
				if !there && testkit.Demanded(cond) {
					return false, fmt.Errorf("an engine with %s is demanded by %s; scripts/engine.sh starts one", cond, testkit.MustRun)
				}
				return there, nil
			}
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

// wheels makes an index of packages in a directory, which have the names of those
// of the science set and next to nothing in them.
func wheels(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: wheels DIR")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	files := map[string]map[string]string{
		"pandas": {"__init__": "import numpy"}, "numpy": {"__init__": "pi = 3"}, "seaborn": {"__init__": ""}, "openpyxl": {"__init__": ""},
		"scipy": {"__init__": "", "stats": ""}, "pyarrow": {"__init__": "", "parquet": ""}, "reportlab": {"__init__": "", "pdfgen/__init__": "", "pdfgen/canvas": ""},
		"matplotlib": {
			"__init__": "import os\ndef get_cachedir():\n    os.makedirs(os.environ['MPLCONFIGDIR'], exist_ok=True)\n    return os.environ['MPLCONFIGDIR']\n",
			"pyplot":   "import matplotlib, os\np = matplotlib.get_cachedir() + '/fontlist-v1.json'\nmade = not os.path.exists(p)\nif made: open(p, 'w').write('{}')\n",
		},
	}
	for name, modules := range files {
		w := testkit.Wheel{Name: name, Version: "9.0", Files: map[string]string{}}
		if name == "pandas" {
			w.Requires = []string{"numpy"}
		}
		for m, text := range modules {
			w.Files[name+"/"+m+".py"] = text + "\n"
		}
		ts.Check(w.Write(dir))
	}
}

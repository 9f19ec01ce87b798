package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// fiveName is mcp-code-sandbox, an older server. This program acts as that server when it
// is called by this name, for example by a link.
const fiveName = "mcp-code-sandbox"

// isFive reports whether the program was called as mcp-code-sandbox.
func isFive(argv []string) bool {
	return len(argv) > 0 && strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == fiveName
}

// five runs as mcp-code-sandbox: without arguments, and with only the settings that it
// had, plus the state directory.
func (a *call) five(ctx context.Context, args []string) error {
	a.started = true
	if len(args) > 0 {
		return app.Usage(fiveName + " takes no arguments: " + app.OneLine(args[0]))
	}
	all := a.Env
	a.Env = slices.DeleteFunc(slices.Clone(all), foreign)
	cfg, err := a.Load()
	a.Env = all
	if err != nil {
		return err
	}
	a.LogFile = true
	return a.Serve(ctx, cfg, app.FiveTools)
}

// foreign reports whether a variable is a setting that mcp-code-sandbox did not have.
func foreign(kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return name != "SANDBOXMCP_STATE_DIR" && (strings.HasPrefix(strings.ToUpper(name), "SANDBOXMCP_") || slices.Contains([]string{"SEARXNG_URL", "WEBSEARCH_ENGINES"}, name))
}

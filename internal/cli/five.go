package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
)

// fiveName is the name under which this program is the server that
// mcp-code-sandbox was: a link to it, say.
const fiveName = "mcp-code-sandbox"

// isFive reports whether the program was called by the name of mcp-code-sandbox.
func isFive(argv []string) bool {
	return len(argv) > 0 && strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == fiveName
}

// five is that server: it takes no arguments, and of the settings only those
// that it always had, and where the state is.
func (a *app) five(ctx context.Context, args []string) error {
	a.started = true
	if len(args) > 0 {
		return usage(fiveName + " takes no arguments: " + oneLine(args[0]))
	}
	all := a.env
	a.env = slices.DeleteFunc(slices.Clone(all), foreign)
	cfg, err := a.load()
	a.env = all
	if err != nil {
		return err
	}
	a.logFile = true
	return a.serve(ctx, cfg, fiveTools)
}

// foreign reports whether a variable is a setting that mcp-code-sandbox does not have.
func foreign(kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return name != "SANDBOXMCP_STATE_DIR" && (strings.HasPrefix(strings.ToUpper(name), "SANDBOXMCP_") || slices.Contains([]string{"SEARXNG_URL", "WEBSEARCH_ENGINES"}, name))
}

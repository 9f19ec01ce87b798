package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// fiveName is mcp-code-sandbox, an older server. This program acts as that server when it
// is called by this name, for example by a link.
const fiveName = "mcp-code-sandbox"

// fiveCommand is mcp-code-sandbox as a command. Its flags override the settings that it had,
// and SANDBOXMCP_STATE_DIR.
func (a *call) fiveCommand() *cobra.Command {
	var t transport
	var version bool
	cmd := &cobra.Command{
		Use:   fiveName,
		Short: "Run Python in a sandbox for an agent",
		Long: `Speaks the Model Context Protocol on stdin and stdout, with the five tools
sandbox_upload_file, sandbox_run_python, sandbox_read_artifact,
sandbox_list_artifacts and sandbox_close_session. It also serves the files of its
sessions over HTTP, and with --transport http the five tools at /mcp. Its settings are variables that begin with SANDBOX_, and
SANDBOXMCP_STATE_DIR. It is the program sandboxmcp under another name.`,
		Example:       `  SANDBOX_EXEC_TIMEOUT_S=30 ` + fiveName,
		Args:          takes(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	a.alone(cmd)
	f := cmd.Flags()
	f.SortFlags = false
	t.flags(f)
	f.BoolVar(&version, "version", false, "print the version")
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if version {
			a.print(versionLine())
			return nil
		}
		if err := a.choose(t, f.Changed); err != nil {
			return err
		}
		all := a.Env
		a.Env = slices.DeleteFunc(slices.Clone(all), foreign)
		cfg, err := a.Load()
		a.Env = all
		if err != nil {
			return err
		}
		a.LogFile = true
		// It never asked for a key. The server warns of that.
		t.http.Five, t.http.NoAuth = true, true
		return a.serve(ctx, cfg, t)
	})
}

// foreign reports whether a variable is a setting that mcp-code-sandbox did not have.
func foreign(kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return name != "SANDBOXMCP_STATE_DIR" && (strings.HasPrefix(strings.ToUpper(name), "SANDBOXMCP_") || slices.Contains([]string{"SEARXNG_URL", "WEBSEARCH_ENGINES"}, name))
}

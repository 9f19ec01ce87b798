package cli

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// apiName is the REST server of an older release. This program acts as that server when it is
// called by this name, for example by a link.
const apiName = "sandboxmcp-api"

// apiPort is its default port.
const apiPort = 8000

// calledAs reports whether the program was called by a name.
func calledAs(argv []string, name string) bool {
	return len(argv) > 0 && strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == name
}

// apiCommand is sandboxmcp-api as a command.
func (a *call) apiCommand() *cobra.Command {
	t := transport{name: "http"}
	var version bool
	cmd := &cobra.Command{
		Use:   apiName,
		Short: "Run programs in sandboxes for REST clients",
		Long: `Serves REST, and MCP at /mcp, on a port of this machine: SANDBOXMCP_API_PORT, or 8000.
Callers need no key unless SANDBOXMCP_API_KEYS or an OAuth issuer is set, so every
user of this machine can run code on it. It is the program sandboxmcp under another name, and does the same
as "sandboxmcp serve --transport http --no-auth --port 8000".`,
		Example:       `  SANDBOXMCP_API_KEYS=KEY=team-a ` + apiName,
		Args:          takes(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	a.alone(cmd)
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&t.port, "port", 0, "`PORT` of HTTP (default: 8000)")
	f.BoolVar(&version, "version", false, "print the version")
	a.withConfig(cmd)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if version {
			a.print(versionLine())
			return nil
		}
		if err := a.choose(t, f.Changed); err != nil {
			return err
		}
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		if cfg.Source("api_port") == config.FromDefault {
			cfg.APIPort = apiPort
		}
		t.http.NoAuth = len(cfg.APIKeys) == 0 && cfg.OAuthIssuer == ""
		return a.serve(ctx, cfg, t)
	})
}

// alone prepares a command that is a program of its own.
func (a *call) alone(cmd *cobra.Command) {
	cmd.SetIn(a.Stdin)
	cmd.SetOut(a.Stdout)
	cmd.SetErr(a.Stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return app.Usage(flagFailure(err)) })
	cmd.CompletionOptions.DisableDefaultCmd = true
}

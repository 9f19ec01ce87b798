package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

func (a *call) serveCommand() *cobra.Command {
	var transport string
	var port int
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run an MCP server on stdin and stdout",
		Long: `Speaks the Model Context Protocol on stdin and stdout, so that an agent can run
code in sandboxes. It ends when its stdin ends or on SIGTERM, with everything that
it started. The log goes to stderr. In another terminal "session", "files", "queue
status", "stats", "inspect", "limits", "events", "artifacts" and "cancel" work on
it.

With --port or the setting of a port it also serves files of its sessions over
HTTP on that port of this machine.`,
		Example: `  sandboxmcp serve
  sandboxmcp serve --config settings.yaml`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&transport, "transport", "stdio", "`NAME` of the transport; only stdio is available")
	f.IntVar(&port, "port", 0, "serve files on this local `PORT`; 0: any free one")
	a.withConfig(cmd)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		switch {
		case transport == "http" || transport == "sse":
			return app.Usage("transport " + transport + " is not in this version; use stdio")
		case transport != "stdio":
			return app.Usage("transport " + strconv.Quote(transport) + " is not known; use stdio")
		case f.Changed("port") && (port < 0 || port > 65535):
			return app.Usage("--port must be a number from 0 to 65535")
		}
		if f.Changed("port") {
			a.Flags = map[string]string{"api_port": strconv.Itoa(port)}
		}
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		return a.Serve(ctx, cfg, app.AllTools)
	})
}

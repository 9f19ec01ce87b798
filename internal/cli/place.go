package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// withServer adds the flag --server.
func withServer(cmd *cobra.Command, p *app.Place) {
	cmd.Flags().StringVar(&p.Server, "server", "", "use only the running server `ID`")
}

// withStart adds the flags of commands that may start a server.
func withStart(cmd *cobra.Command, p *app.Place) {
	withServer(cmd, p)
	cmd.Flags().BoolVar(&p.Alone, "no-server", false, "fail rather than start a server in the background")
}

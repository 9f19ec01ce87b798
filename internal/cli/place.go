package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// withServer gives a command the flag --server.
func withServer(cmd *cobra.Command, p *app.Place) {
	cmd.Flags().StringVar(&p.Server, "server", "", "ask only the running server with this `ID`")
}

// withStart gives a command that may start a server its flags.
func withStart(cmd *cobra.Command, p *app.Place) {
	withServer(cmd, p)
	cmd.Flags().BoolVar(&p.Alone, "no-server", false, "fail rather than start a server in the background")
}

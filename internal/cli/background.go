package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// backgroundCommand is the server that commands start for their sessions.
func (a *call) backgroundCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   app.BackgroundWord,
		Short: "Be a server for the sessions of other commands",
		Long: `Keeps sessions and background runs that other commands ask for, and ends five
minutes after the last of them. Such a command starts it; nobody has to. Its log
is ` + app.BackgroundLog + ` in the state directory.`,
		Example: `  sandboxmcp ` + app.BackgroundWord,
		Args:    takes(),
		Hidden:  true,
	}
	return a.withSettings(cmd, func(ctx context.Context, cfg *config.Config, _ []string) error {
		return a.Background(ctx, cfg)
	})
}

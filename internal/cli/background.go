package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// backgroundCommand is the hidden command that other commands start as a server for
// sessions.
func (a *call) backgroundCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   app.BackgroundWord,
		Short: "Run a server for sessions of other commands",
		Long: `Keeps sessions and background runs of other commands, and ends five minutes after
the last of them. These commands start it when they need it. Its log is
` + app.BackgroundLog + ` in the state directory.`,
		Example:     `  sandboxmcp ` + app.BackgroundWord,
		Args:        takes(),
		Hidden:      true,
		Annotations: map[string]string{reloads: "yes"},
	}
	return a.withSettings(cmd, func(ctx context.Context, cfg *config.Config, _ []string) error {
		return a.Background(ctx, cfg)
	})
}

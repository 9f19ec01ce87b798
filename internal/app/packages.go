package app

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Install installs packages: in the server that has the session, or without one into the state
// directory, whose servers then show them to later runs. On a terminal it prints progress on
// stderr.
func (a *App) Install(ctx context.Context, cfg *config.Config, p Place, ask sandboxmcp.InstallAsk) (r sandboxmcp.Installation, err error) {
	if ask.SessionID != "" {
		s, failed := a.Owner(ctx, cfg, p, ask.SessionID)
		if failed != nil {
			return r, failed
		}
		a.Progress("installing into the session, which may take a minute") // its server tells nothing meanwhile
		return s.Install(ctx, Me(cfg), ask)
	}
	ask.Note = a.Progress
	err = a.WithEngine(ctx, cfg, func(e Engine) error {
		r, err = e.Install(ctx, Me(cfg), ask)
		return err
	})
	return r, err
}

package app

import (
	"context"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/probe"
)

// Attack is the outcome of harmless attempts to get out of a sandbox.
type Attack struct {
	Held      bool                  `json:"ok"` // all of them
	Version   string                `json:"version"`
	Isolation *sandboxmcp.Isolation `json:"isolation"`
	Findings  []probe.Finding       `json:"attack"`
}

// Attack runs the probes in sandboxes of this machine, as runs of the person at the terminal.
func (a *App) Attack(ctx context.Context, cfg *config.Config) (Attack, error) {
	done := Attack{Version: Version()}
	err := a.WithEngine(ctx, cfg, func(e Engine) (err error) {
		execute := func(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
			return e.Execute(ctx, Me(cfg), req)
		}
		done.Findings, done.Isolation, err = probe.Run(ctx, execute, func(n, of int) {
			a.Progress("attack " + strconv.Itoa(n+1) + " of " + strconv.Itoa(of))
		})
		return err
	})
	done.Held = err == nil && len(done.Findings) > 0
	for _, f := range done.Findings {
		done.Held = done.Held && f.Held
	}
	return done, err
}

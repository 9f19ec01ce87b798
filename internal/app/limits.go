package app

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// ServerLimits are the limits in force in one server.
type ServerLimits struct {
	Server string
	Limits sandboxmcp.Limits
}

// SetLimits changes the limits in the state directory, or returns them if the change is
// empty. It then does the same in each running server with its own store. differ lists
// servers whose settings lead to other limits.
func (a *App) SetLimits(ctx context.Context, cfg *config.Config, c sandboxmcp.LimitsChange) (done sandboxmcp.LimitsChanged, differ []ServerLimits, err error) {
	_, missing := os.Stat(cfg.StateDir)
	show := c.Limits == (sandboxmcp.Limits{}) && !c.Reset
	inMemory := cfg.Audit == "memory"
	known := true
	switch {
	case inMemory:
		known = false
	case show && errors.Is(missing, fs.ErrNotExist):
		done = sandboxmcp.LimitsChanged{Previous: cfg.Limits(), Current: cfg.Limits(), Clamped: []string{}}
	default:
		err = a.WithEngine(ctx, cfg, func(e Engine) (err error) {
			done, err = e.SetLimits(ctx, Me(cfg), c)
			return err
		})
		if err != nil {
			return done, differ, err
		}
	}
	peers, err := a.Servers(ctx, cfg, Place{})
	if err != nil {
		return done, differ, err
	}
	for _, p := range peers {
		there, err := p.SetLimits(ctx, Me(cfg), c)
		switch {
		case err != nil && !known && len(peers) == 1:
			return done, differ, err
		case err != nil:
			a.Say("server " + p.Peer().ID + ": " + err.Error())
		case !known:
			done, known = there, true
		case there.Current != done.Current:
			differ = append(differ, ServerLimits{p.Peer().ID, there.Current})
		}
	}
	if !known && show {
		return sandboxmcp.LimitsChanged{Previous: cfg.Limits(), Current: cfg.Limits(), Clamped: []string{}}, differ, nil
	}
	if !known {
		return done, differ, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the limits could not be stored: with audit set to memory only running servers store them, and none answered").
			WithHint("start a server first, or set the limits in its settings")
	}
	return done, differ, nil
}

// limitsOf returns the limits in force for a namespace, according to the state directory.
func (a *App) limitsOf(ctx context.Context, cfg *config.Config, ns sandboxmcp.Namespace) (l sandboxmcp.Limits, err error) {
	if _, missing := os.Stat(cfg.StateDir); errors.Is(missing, fs.ErrNotExist) || cfg.Audit == "memory" {
		return cfg.Limits(), nil
	}
	err = a.WithEngine(ctx, cfg, func(e Engine) error {
		now, failed := e.SetLimits(ctx, sandboxmcp.Caller{Namespace: ns, Actor: api.Actor}, sandboxmcp.LimitsChange{})
		l = now.Current
		return failed
	})
	return l, err
}

package app

import (
	"context"
	"maps"
	"os"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Inspect returns the state of the namespace in the running servers, or of the session
// args[0]. If no server runs, it returns the state in the state directory.
func (a *App) Inspect(ctx context.Context, cfg *config.Config, p Place, args []string) (sandboxmcp.State, error) {
	if len(args) > 0 {
		s, err := a.Owner(ctx, cfg, p, sandboxmcp.SessionID(args[0]))
		if err == nil {
			var state sandboxmcp.State
			state, err = s.Inspect(ctx, Me(cfg), s.Session.ID)
			belongTo(&state, s.Client)
			tidy(&state)
			return state, err
		}
		if args[0] != "default" || sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
			return sandboxmcp.State{}, err
		}
	}
	sum := sandboxmcp.State{Namespace: cfg.Namespace, Env: map[string]any{}}
	peers, err := a.Servers(ctx, cfg, p)
	if err == nil && len(peers) == 0 {
		sum.Limits, err = a.limitsOf(ctx, cfg, cfg.Namespace)
	}
	if err != nil {
		return sum, err
	}
	for _, c := range peers {
		state, failed := c.Inspect(ctx, Me(cfg), "")
		if failed != nil {
			a.Say("server " + c.Peer().ID + ": " + failed.Error())
			continue
		}
		belongTo(&state, c)
		join(&sum, state)
	}
	if _, missing := os.Stat(cfg.StateDir); len(peers) == 0 && missing == nil && p.Server == "" { // no server runs, so the state directory has the whole state
		err = a.WithEngine(ctx, cfg, func(e Engine) error {
			state, failed := e.Inspect(ctx, Me(cfg), "")
			sum.Egress, sum.VaultKeys, sum.Env = state.Egress, state.VaultKeys, state.Env
			return failed
		})
		if err != nil {
			return sum, err
		}
	}
	tidy(&sum)
	return sum, ctx.Err()
}

// belongTo sets the owner of the sessions to the server's id, as --server takes it.
func belongTo(s *sandboxmcp.State, c *api.Client) {
	for i := range s.Sessions {
		s.Sessions[i].Owner = c.Peer().ID
	}
}

// join adds the state of a namespace in one server to that of others.
func join(sum *sandboxmcp.State, s sandboxmcp.State) {
	sum.Limits = s.Limits
	sum.Sessions = append(sum.Sessions, s.Sessions...)
	sum.Files = append(sum.Files, s.Files...)
	sum.VaultKeys = append(sum.VaultKeys, s.VaultKeys...)
	sum.Egress.Allowed = append(sum.Egress.Allowed, s.Egress.Allowed...)
	sum.Egress.Pending = append(sum.Egress.Pending, s.Egress.Pending...)
	maps.Copy(sum.Env, s.Env)
}

// tidy removes duplicate names and makes nil lists empty.
func tidy(s *sandboxmcp.State) {
	for _, l := range []*[]string{&s.VaultKeys, &s.Egress.Allowed} {
		slices.Sort(*l)
		*l = append([]string{}, slices.Compact(*l)...)
	}
	s.Egress.Pending = eachApproval(s.Egress.Pending)
	s.Sessions = append([]sandboxmcp.Session{}, s.Sessions...)
	s.Files = append([]sandboxmcp.SessionFile{}, s.Files...)
	if s.Env == nil {
		s.Env = map[string]any{}
	}
}

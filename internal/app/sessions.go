package app

import (
	"context"
	"errors"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Sessions lists the sessions of all running servers, oldest first. The owner of each is
// its server's id, which --server takes.
func (a *App) Sessions(ctx context.Context, cfg *config.Config, p Place) ([]sandboxmcp.Session, error) {
	all := []sandboxmcp.Session{}
	peers, err := a.Servers(ctx, cfg, p)
	if err != nil {
		return nil, err
	}
	for _, c := range peers {
		have, err := c.Sessions(ctx, Me(cfg))
		switch sandboxmcp.CodeOf(err) {
		case "":
		case sandboxmcp.CodeNotFound: // an older server without sessions
		default:
			a.Say("server " + c.Peer().ID + ": " + err.Error())
		}
		for _, s := range have {
			s.Owner = c.Peer().ID
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(x, y sandboxmcp.Session) int { return x.CreatedAt.Compare(y.CreatedAt) })
	return all, ctx.Err()
}

// AskServers looks for a request in the running servers, which know requests that have not
// ended. found is false if the content of large files is missing, because the state
// directory has the whole result. err is the failure of a background run without a result.
// It applies only if the state directory does not have the request either.
func (a *App) AskServers(ctx context.Context, cfg *config.Config, q sandboxmcp.Lookup) (res sandboxmcp.Result, found bool, err error) {
	peers, err := a.Servers(ctx, cfg, Place{})
	if err != nil {
		return res, false, err
	}
	for _, p := range peers {
		got, failed := p.Lookup(ctx, Me(cfg), q)
		var coded *sandboxmcp.Error
		switch {
		case failed == nil && api.Complete(got):
			return got, true, nil
		case failed == nil, sandboxmcp.CodeOf(failed) == sandboxmcp.CodeRequestNotFound:
		case errors.As(failed, &coded):
			err = failed
		default:
			a.Say("server " + p.Peer().ID + ": " + failed.Error())
		}
	}
	return sandboxmcp.Result{}, false, err
}

package app

import (
	"context"
	"errors"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Sessions are those of all running servers, oldest first. As the owner each
// has the id of its server, which --server takes.
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
		case sandboxmcp.CodeNotFound: // of a version that has none
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

// AskServers looks for a request in the running servers, which know of those
// that have not ended. Found is only what is whole: the content of large files
// stands in the state directory. The error is the answer where it is not there
// either: how a background run failed that came to no result.
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

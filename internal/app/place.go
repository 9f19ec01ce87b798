package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Place says where to search for a session or create it. It holds flags of a command.
type Place struct {
	Server string // use only this server; empty: every running server
	Alone  bool   // do not start a server
}

// Servers returns the running servers that p allows. It prints the names of those that do
// not answer.
func (a *App) Servers(ctx context.Context, cfg *config.Config, p Place) ([]*api.Client, error) {
	all, mute, err := a.ask(ctx, cfg, p)
	if mute != nil {
		a.Say(mute.Error())
	}
	return all, err
}

// ask returns the running servers that p allows. mute names those that run but do not
// answer.
func (a *App) ask(ctx context.Context, cfg *config.Config, p Place) (some []*api.Client, mute, err error) {
	all, mute := api.Peers(ctx, cfg.StateDir)
	if p.Server == "" {
		return all, mute, nil
	}
	names := make([]string, 0, len(all))
	for _, c := range all {
		if c.Peer().ID == p.Server {
			return []*api.Client{c}, nil, nil
		}
		names = append(names, c.Peer().ID)
	}
	hint := "no server is running"
	if len(names) > 0 {
		hint = "running are " + strings.Join(names, ", ")
	}
	return nil, mute, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "no running server has the id %s", sandboxmcp.Quote(p.Server)).WithHint(hint)
}

// Found is a session and the server that has it.
type Found struct {
	*api.Client
	Session sandboxmcp.Session
}

// Owner finds the one server that has a session. If several servers have a session with
// this id, it fails and names them. If no server has it, it fails with session_not_found,
// or with session_expired if it existed. If a server does not answer, it fails with
// backend_unavailable, because that server may have the session. A new session with the
// same id would then be confused with it.
func (a *App) Owner(ctx context.Context, cfg *config.Config, p Place, id sandboxmcp.SessionID) (Found, error) {
	if _, err := sandboxmcp.ParseSessionID(string(id)); err != nil {
		return Found{}, err
	}
	peers, mute, err := a.ask(ctx, cfg, p)
	if err != nil {
		return Found{}, err
	}
	var (
		mu     sync.Mutex // guards owners and mute
		owners []Found
		wg     sync.WaitGroup
	)
	for _, c := range peers {
		wg.Go(func() {
			s, err := c.Session(ctx, Me(cfg), id)
			mu.Lock()
			defer mu.Unlock()
			switch sandboxmcp.CodeOf(err) {
			case "":
				owners = append(owners, Found{c, s})
			case sandboxmcp.CodeSessionNotFound, sandboxmcp.CodeSessionExpired:
			default:
				mute = errors.Join(mute, fmt.Errorf("server %s: %w", c.Peer().ID, err))
			}
		})
	}
	wg.Wait()
	switch {
	case ctx.Err() != nil:
		return Found{}, ctx.Err()
	case len(owners) == 1:
		return owners[0], nil
	case len(owners) > 1:
		return Found{}, severalOwners(id, owners)
	}
	if err := a.Expired(ctx, cfg, cfg.Namespace, id); err != nil {
		return Found{}, err
	}
	if mute != nil {
		return Found{}, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "no server that answers has a session %s", sandboxmcp.Quote(string(id))).
			WithHint("a server that does not answer may have it; end that, or pick another with --server").WithCause(mute)
	}
	return Found{}, sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "no running server has a session %s", sandboxmcp.Quote(string(id))).
		WithHint("see `sandboxmcp session list`, or create it with `sandboxmcp session create --id " + string(id) + "`")
}

func severalOwners(id sandboxmcp.SessionID, owners []Found) error {
	names := make([]string, 0, len(owners))
	for _, o := range owners {
		names = append(names, o.Peer().ID)
	}
	list := strings.Join(names, ", ")
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d servers have a session %s: %s", len(owners), sandboxmcp.Quote(string(id)), list).
		WithHint("pick one with --server").With("servers", names)
}

// home finds the server for a new session or background run. It prefers a background
// server, then the only running server. If no server runs, or several that serve agents, it
// starts a background server.
func (a *App) home(ctx context.Context, cfg *config.Config, p Place) (*api.Client, error) {
	peers, err := a.Servers(ctx, cfg, p)
	if err != nil {
		return nil, err
	}
	for _, c := range peers {
		if c.Peer().Background {
			return c, nil
		}
	}
	switch {
	case len(peers) == 1:
		return peers[0], nil
	case p.Alone && len(peers) == 0:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "no server is running that could run it").
			WithHint("start one with `sandboxmcp serve`, or leave out --no-server")
	case p.Alone:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "%d servers are running and none of them in the background", len(peers)).
			WithHint("pick one with --server, or leave out --no-server")
	}
	return a.startServer(ctx, cfg, func(h api.Hello) bool { return h.Background })
}

// InHome calls work for the server that home finds. If that server cannot be reached, it
// tries another one. It never repeats work that a server may have begun.
func (a *App) InHome(ctx context.Context, cfg *config.Config, p Place, work func(*api.Client) error) error {
	c, err := a.home(ctx, cfg, p)
	if err != nil {
		return err
	}
	err = work(c)
	if !api.Unreached(err) || ctx.Err() != nil || p.Server != "" {
		return err
	}
	if again, failed := a.home(ctx, cfg, p); failed == nil && again.Peer().ID != c.Peer().ID {
		return work(again)
	}
	return err
}

// expiredHere fails with session_expired if the state directory remembers the session. If
// the state directory cannot be read, it returns nil.
func (a *App) expiredHere(ctx context.Context, cfg *config.Config, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error {
	if _, err := os.Stat(cfg.StateDir); err != nil || cfg.Audit == "memory" {
		return nil //nolint:nilerr // the next step that needs it reports the error
	}
	var gone error
	_ = a.WithEngine(ctx, cfg, func(e Engine) error {
		if _, err := e.SessionFiles(ctx, sandboxmcp.Caller{Namespace: ns}, id); sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionExpired {
			gone = err
		}
		return nil
	})
	return gone
}

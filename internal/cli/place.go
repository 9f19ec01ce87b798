package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// place says where a session is looked for, or made: the flags of a command.
type place struct {
	server string // only in this one; empty: in every running server
	alone  bool   // no server is started
}

// withServer gives a command the flag --server.
func (p *place) withServer(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.server, "server", "", "ask only the running server with this `ID`")
}

// withStart gives a command that may start a server its flags.
func (p *place) withStart(cmd *cobra.Command) {
	p.withServer(cmd)
	cmd.Flags().BoolVar(&p.alone, "no-server", false, "fail rather than start a server in the background")
}

// servers finds the running servers that may be asked, and says which do not answer.
func (a *app) servers(ctx context.Context, cfg *config.Config, p place) ([]*api.Client, error) {
	all, mute, err := a.ask(ctx, cfg, p)
	if mute != nil {
		a.say(mute.Error())
	}
	return all, err
}

// ask finds the running servers that may be asked. Mute tells of those that
// run and do not answer.
func (a *app) ask(ctx context.Context, cfg *config.Config, p place) (some []*api.Client, mute, err error) {
	all, mute := api.Peers(ctx, cfg.StateDir)
	if p.server == "" {
		return all, mute, nil
	}
	names := make([]string, 0, len(all))
	for _, c := range all {
		if c.Peer().ID == p.server {
			return []*api.Client{c}, nil, nil
		}
		names = append(names, c.Peer().ID)
	}
	hint := "no server is running"
	if len(names) > 0 {
		hint = "running are " + strings.Join(names, ", ")
	}
	return nil, mute, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "no running server has the id %s", sandboxmcp.Quote(p.server)).WithHint(hint)
}

// found is a session with the server that has it.
type found struct {
	*api.Client
	session sandboxmcp.Session
}

// owner finds the one server that has a session. Where several have one of this
// id it fails and names them, and where none has it with session_not_found, or
// session_expired if there was one. While a server does not answer nobody knows
// that: then it fails with backend_unavailable, so that nobody works on in
// another session of that name.
func (a *app) owner(ctx context.Context, cfg *config.Config, p place, id sandboxmcp.SessionID) (found, error) {
	if _, err := sandboxmcp.ParseSessionID(string(id)); err != nil {
		return found{}, err
	}
	peers, mute, err := a.ask(ctx, cfg, p)
	if err != nil {
		return found{}, err
	}
	var (
		mu     sync.Mutex // guards owners and mute
		owners []found
		wg     sync.WaitGroup
	)
	for _, c := range peers {
		wg.Go(func() {
			s, err := c.Session(ctx, me(cfg), id)
			mu.Lock()
			defer mu.Unlock()
			switch sandboxmcp.CodeOf(err) {
			case "":
				owners = append(owners, found{c, s})
			case sandboxmcp.CodeSessionNotFound, sandboxmcp.CodeSessionExpired:
			default:
				mute = errors.Join(mute, fmt.Errorf("server %s: %w", c.Peer().ID, err))
			}
		})
	}
	wg.Wait()
	switch {
	case ctx.Err() != nil:
		return found{}, ctx.Err()
	case len(owners) == 1:
		return owners[0], nil
	case len(owners) > 1:
		return found{}, severalOwners(id, owners)
	}
	if err := a.expired(ctx, cfg, cfg.Namespace, id); err != nil {
		return found{}, err
	}
	if mute != nil {
		return found{}, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "no server that answers has a session %s", sandboxmcp.Quote(string(id))).
			WithHint("a server that does not answer may have it; end that, or pick another with --server").WithCause(mute)
	}
	return found{}, sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "no running server has a session %s", sandboxmcp.Quote(string(id))).
		WithHint("see `sandboxmcp session list`, or create it with `sandboxmcp session create --id " + string(id) + "`")
}

func severalOwners(id sandboxmcp.SessionID, owners []found) error {
	names := make([]string, 0, len(owners))
	for _, o := range owners {
		names = append(names, o.Peer().ID)
	}
	list := strings.Join(names, ", ")
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d servers have a session %s: %s", len(owners), sandboxmcp.Quote(string(id)), list).
		WithHint("pick one with --server").With("servers", names)
}

// home finds the server for something new: one in the background if there is
// one, else the only one that runs; where there is none, or several belong to
// agents, one is started in the background.
func (a *app) home(ctx context.Context, cfg *config.Config, p place) (*api.Client, error) {
	peers, err := a.servers(ctx, cfg, p)
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
	case p.alone && len(peers) == 0:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "no server is running that could keep it").
			WithHint("start one with `sandboxmcp serve`, or leave out --no-server")
	case p.alone:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "%d servers are running and none of them in the background", len(peers)).
			WithHint("pick one with --server, or leave out --no-server")
	}
	return a.startServer(ctx, cfg)
}

// inHome does something new in a server, and in another one if that cannot be reached
// any more. What a server may have begun is never done again.
func (a *app) inHome(ctx context.Context, cfg *config.Config, p place, work func(*api.Client) error) error {
	c, err := a.home(ctx, cfg, p)
	if err != nil {
		return err
	}
	err = work(c)
	if !api.Unreached(err) || ctx.Err() != nil || p.server != "" {
		return err
	}
	if again, failed := a.home(ctx, cfg, p); failed == nil && again.Peer().ID != c.Peer().ID {
		return work(again)
	}
	return err
}

// expiredHere asks the state directory whether a session that no running server
// has was one: it fails with session_expired then. What cannot be asked knows of none.
func (a *app) expiredHere(ctx context.Context, cfg *config.Config, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error {
	if _, err := os.Stat(cfg.StateDir); err != nil || cfg.Audit == "memory" {
		return nil //nolint:nilerr // whoever needs it says what is wrong with it
	}
	var gone error
	_ = a.withEngine(ctx, cfg, func(e runner) error {
		if _, err := e.SessionFiles(ctx, sandboxmcp.Caller{Namespace: ns}, id); sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionExpired {
			gone = err
		}
		return nil
	})
	return gone
}

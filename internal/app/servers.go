package app

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// BackgroundServer is a server that a command has started.
type BackgroundServer struct {
	ID        string    `json:"id"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	Sessions  int       `json:"sessions"`
	Active    int       `json:"active"` // runs that go on or wait
}

// BackgroundServers lists the running background servers, oldest first.
func (a *App) BackgroundServers(ctx context.Context, cfg *config.Config) ([]BackgroundServer, error) {
	peers, err := a.Servers(ctx, cfg, Place{})
	if err != nil {
		return nil, err
	}
	all := []BackgroundServer{}
	for _, c := range peers {
		h := c.Peer()
		if !h.Background {
			continue
		}
		s := BackgroundServer{ID: h.ID, PID: h.PID, StartedAt: h.StartedAt}
		if st, err := c.Stats(ctx); err == nil {
			s.Sessions, s.Active = st.Sessions, st.Queue.Active+st.Queue.Queued
		} else {
			a.Say("server " + h.ID + ": " + err.Error())
		}
		all = append(all, s)
	}
	return all, ctx.Err()
}

// stopWithin bounds the wait for a server that was stopped. It is longer than stopLimit.
const stopWithin = 6 * time.Second

// StopServer ends a background server with everything in it, and returns when its process
// has ended.
func (a *App) StopServer(ctx context.Context, cfg *config.Config, id string) error {
	peers, mute := api.Peers(ctx, cfg.StateDir)
	for _, c := range peers {
		if c.Peer().ID != id {
			continue
		}
		if err := c.Stop(ctx); err != nil {
			return err
		}
		return gone(ctx, cfg.StateDir, c.Peer())
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no running server has the id %s", sandboxmcp.Quote(id)).
		WithHint("see `sandboxmcp server list`").WithCause(mute)
}

// gone waits until a server's process has ended.
func gone(ctx context.Context, stateDir string, h api.Hello) error {
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	for {
		if _, err := api.Find(ctx, stateDir, h.ID); errors.Is(err, os.ErrNotExist) && !alive(h.PID) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "server %s has not ended within %s", h.ID, stopWithin).
				WithHint("see " + BackgroundLog + " in the state directory")
		}
	}
}

// alive reports whether a process with that id runs. A zombie does not: it has ended, and its
// parent has not noticed. This process does not count, because tests serve in it.
func alive(pid int) bool {
	if pid == os.Getpid() {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	if err = p.Signal(syscall.Signal(0)); err != nil && !errors.Is(err, os.ErrPermission) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return err != nil || !bytes.HasPrefix(state, []byte("Z"))
}

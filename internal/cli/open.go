package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// runner is the engine of this process.
type runner interface {
	sandboxmcp.Service
	Namespace() sandboxmcp.Namespace
	AuditInMemory() bool
	RotateVault(ctx context.Context, c sandboxmcp.Caller) (int, error)
	io.Closer
}

// me is the caller of every command: the person at the terminal, in the namespace
// of the settings.
func me(cfg *config.Config) sandboxmcp.Caller {
	return sandboxmcp.Caller{Namespace: cfg.Namespace, Actor: api.Actor}
}

// everyone is the person at the terminal for verbs that list all namespaces.
func everyone() sandboxmcp.Caller {
	return sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace, Actor: api.Actor}
}

func openEngine(ctx context.Context, o engine.Options) (runner, error) {
	e, err := engine.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (a *app) options(cfg *config.Config, logger *slog.Logger, actor string) engine.Options {
	return engine.Options{Config: cfg, Env: a.env, Actor: actor, Version: version(), Logger: logger, Notices: a.notices(cfg)}
}

// notices is where a person is told that something waits for an answer: nowhere
// but to a log whose readers would not know what to do with another line.
func (a *app) notices(cfg *config.Config) io.Writer {
	if cfg.Tools.LogFormat == "json" {
		return nil
	}
	return a.stderr
}

// withEngine opens an engine with the settings, works with it and closes it.
// What will be run, if anything, is prepared meanwhile.
func (a *app) withEngine(ctx context.Context, cfg *config.Config, work func(runner) error, warm ...sandboxmcp.Language) error {
	logger, done, err := a.logger(cfg, quiet)
	if err != nil {
		return err
	}
	defer done()
	o := a.options(cfg, logger, "cli")
	o.Warm = warm
	e, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if err := e.Close(); err != nil {
			logger.Error("close engine", "error", err)
		}
	}()
	return work(e)
}

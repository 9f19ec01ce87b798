package app

import (
	"context"
	"io"
	"log/slog"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// Options configures an engine: the options of the library, and the settings that they were
// read as.
type Options struct {
	engine.Options
	Config *config.Config
}

// AddBackend makes a backend of another module, as settings say. The backend holds nothing before it is
// used.
type AddBackend func(cfg *config.Config, logger *slog.Logger) backend.Backend

// OpenObjects returns the object store that the setting blob_url names. It does not connect.
type OpenObjects func(url string) (sandboxmcp.Objects, error)

// Reloaded says which settings a server has read again.
type Reloaded = engine.Reloaded

// Engine is the engine of this process.
type Engine interface {
	server.Engine
	Namespace() sandboxmcp.Namespace
	AuditInMemory() bool
	Packages(ctx context.Context) ([]string, error)
	RotateVault(ctx context.Context, c sandboxmcp.Caller) (int, error)
	Reload() (Reloaded, error)
	Peers(ctx context.Context) ([]string, error)
	Answers(ctx context.Context) error // of the database; /readyz asks it, also through confined and replicas
	io.Closer
}

// Me is the caller of commands: the person at the terminal, in the namespace of the
// settings.
func Me(cfg *config.Config) sandboxmcp.Caller {
	return sandboxmcp.Caller{Namespace: cfg.Namespace, Actor: api.Actor}
}

// Everyone is the person at the terminal as caller of methods that list all namespaces.
func Everyone() sandboxmcp.Caller {
	return sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace, Actor: api.Actor}
}

func openEngine(ctx context.Context, o Options) (Engine, error) {
	e, err := engine.Open(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (a *App) options(cfg *config.Config, logger *slog.Logger, actor string) Options {
	var added []backend.Backend
	for _, add := range a.Backends {
		added = append(added, add(cfg, logger))
	}
	return Options{Config: cfg, Options: engine.Options{
		Backends: added, Objects: a.Objects, Settings: a.sources, Namespace: cfg.Namespace,
		Env: a.Env, Actor: actor, Version: Version(), Logger: logger, Notices: a.notices(cfg), Invocation: a.invocation(a.loaded),
	}}
}

// notices is the writer for notices of new approvals. It is nil if the log is JSON,
// because plain lines would break it.
func (a *App) notices(cfg *config.Config) io.Writer {
	if cfg.Tools.LogFormat == "json" {
		return nil
	}
	return a.Stderr
}

// WithEngine opens an engine, calls work and closes the engine. Languages in warm are
// prepared in the background.
func (a *App) WithEngine(ctx context.Context, cfg *config.Config, work func(Engine) error, warm ...sandboxmcp.Language) error {
	return a.withEngine(ctx, cfg, work, func(o *Options) { o.Warm = warm })
}

// WithEngineFor is WithEngine for a request that work will execute.
func (a *App) WithEngineFor(ctx context.Context, cfg *config.Config, req sandboxmcp.Request, work func(Engine) error) error {
	return a.withEngine(ctx, cfg, work, func(o *Options) { o.First = &req })
}

func (a *App) withEngine(ctx context.Context, cfg *config.Config, work func(Engine) error, with func(*Options)) error {
	logger, done, err := a.logger(cfg, quiet)
	if err != nil {
		return err
	}
	defer done()
	o := a.options(cfg, logger, "cli")
	with(&o)
	e, err := a.Open(ctx, o)
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

// Doctor checks what this machine offers.
func (a *App) Doctor(ctx context.Context, cfg *config.Config) ([]sandboxmcp.Check, error) {
	logger, done, err := a.logger(cfg, quiet)
	if err != nil {
		return nil, err
	}
	defer done()
	return append(a.Diagnose(ctx, a.options(cfg, logger, "cli")), a.checkRecord(ctx, cfg)), nil
}
